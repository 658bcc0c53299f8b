// Expressions of a running template.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.hpp"
#include "core/base/utf8.hpp"
#include "core/model/chat/jinja_run.hpp"

namespace kvscope::jinja {

namespace {

struct IntegerOverflow {};

std::int64_t floor_quotient(std::int64_t a, std::int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

/// Throws IntegerOverflow.
std::int64_t whole_arithmetic(char sign, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool overflows = false;
  if (sign == '+') overflows = __builtin_add_overflow(a, b, &result);
  if (sign == '-') overflows = __builtin_sub_overflow(a, b, &result);
  if (sign == '*') overflows = __builtin_mul_overflow(a, b, &result);
  if (overflows) throw IntegerOverflow{};
  return result;
}

}  // namespace

Value Run::look_up(const std::string& name, const Scope& scope) const {
  for (const Scope* at = &scope; at != nullptr; at = at->outer) {
    const auto found = at->names.find(name);
    if (found != at->names.end()) return found->second;
  }
  return Value::undefined(name);
}

/// Counts levels of calls in evaluate(); Deeper of jinja_run.cpp does so for statements.
Value Run::evaluate(const Expression& node, Scope& scope) {
  line_ = node.line;
  pay(1);
  if (depth_ >= kMostCalls)
    throw FormatError(fmt::format("calls nest more than {} levels deep", kMostCalls));
  ++depth_;
  Value value = evaluate_kind(node, scope);
  --depth_;  // not after an exception, which ends the run
  return value;
}

Value Run::evaluate_kind(const Expression& node, Scope& scope) {
  const auto part = [&](std::size_t i) { return evaluate(*node.parts[i], scope); };
  switch (node.kind) {
    case ExpressionKind::constant:
      return node.value;
    case ExpressionKind::name:
      return look_up(node.text, scope);
    case ExpressionKind::list: {
      std::vector<Value> items;
      for (std::size_t i = 0; i < node.parts.size(); ++i) items.push_back(part(i));
      return Value::list(std::move(items));
    }
    case ExpressionKind::mapping:
      return evaluate_mapping(node, scope);
    case ExpressionKind::attribute:
      return attribute(part(0), node.text);
    case ExpressionKind::item: {
      const Value of = part(0);
      return item(of, part(1));
    }
    case ExpressionKind::slice:
      return evaluate_slice(node, scope);
    case ExpressionKind::call:
      return evaluate_call(node, scope);
    case ExpressionKind::filter: {
      const Value value = part(0);
      return filter(node.text, value, arguments_of(node, scope));
    }
    case ExpressionKind::test: {
      const Value value = part(0);
      return Value::truth(test(node.text, value, arguments_of(node, scope)));
    }
    case ExpressionKind::unary: {
      const Value value = part(0);
      if (node.text == "not") return Value::truth(!value.is_true());
      if (node.text == "-") return arithmetic("-", Value::integer(0), value);
      return arithmetic("+", Value::integer(0), value);
    }
    case ExpressionKind::binary:
      return evaluate_binary(node, scope);
    case ExpressionKind::compare:
      return Value::truth(evaluate_compare(node, scope));
    case ExpressionKind::condition:
      if (part(1).is_true()) return part(0);
      return node.parts[2] ? part(2) : Value::undefined("the inline if without else");
  }
  return {};
}

Value Run::evaluate_mapping(const Expression& node, Scope& scope) {
  std::vector<Entry> entries;
  for (std::size_t i = 0; i < node.parts.size(); i += 2) {
    const Value key = evaluate(*node.parts[i], scope);
    Value value = evaluate(*node.parts[i + 1], scope);
    const std::string& name = text_argument(key, "a mapping's key");
    pay(static_cast<std::int64_t>(entries.size()));
    const auto at = std::find_if(entries.begin(), entries.end(),
                                 [&](const Entry& entry) { return entry.first == name; });
    if (at == entries.end())
      entries.emplace_back(name, std::move(value));
    else
      at->second = std::move(value);
  }
  return Value::mapping(std::move(entries));
}

Value Run::evaluate_binary(const Expression& node, Scope& scope) {
  Value a = evaluate(*node.parts[0], scope);
  if (node.text == "and") return a.is_true() ? evaluate(*node.parts[1], scope) : a;
  if (node.text == "or") return a.is_true() ? a : evaluate(*node.parts[1], scope);
  const Value b = evaluate(*node.parts[1], scope);
  if (node.text == "~") {
    std::string joined = shown(a);
    joined += shown(b);
    return text(std::move(joined));
  }
  return arithmetic(node.text, a, b);
}

Value Run::arithmetic(const std::string& sign, const Value& a, const Value& b) {
  const auto refuse = [&](std::string_view why) -> Value {
    const auto name = [](const Value& value) {
      const auto* undefined = value.is_undefined() ? "an undefined value" : nullptr;
      return undefined != nullptr ? std::string(undefined) : std::string(value.kind());
    };
    throw FormatError(fmt::format("{} {} {}{}", name(a), sign, name(b), why));
  };
  if (sign == "+" && a.as_text() != nullptr && b.as_text() != nullptr) {
    pay_text(a.as_text()->size() + b.as_text()->size());
    return Value::text(*a.as_text() + *b.as_text());
  }
  if (sign == "+" && a.as_list() != nullptr && b.as_list() != nullptr) {
    std::vector<Value> items = items_of(a);
    for (const Value& item : items_of(b)) items.push_back(item);
    return Value::list(std::move(items));
  }
  if (sign == "*" && (a.as_text() != nullptr) != (b.as_text() != nullptr)) {
    const std::string& word = a.as_text() != nullptr ? *a.as_text() : *b.as_text();
    const Value& count = a.as_text() != nullptr ? b : a;
    if (!count.is_integer()) return refuse(": expected a whole number");
    const std::int64_t n = std::max<std::int64_t>(0, *count.as_integer());
    if (n > 0 && static_cast<std::int64_t>(word.size()) > kMostWork / n * 16) pay(kMostWork * 1024);
    std::string out;
    pay_text(word.size() * static_cast<std::size_t>(n));
    pay(n / 16);
    for (std::int64_t i = 0; i < n && !word.empty(); ++i) out += word;
    return Value::text(std::move(out));
  }
  double x = 0.0;
  double y = 0.0;
  if (!a.get_number(x) || !b.get_number(y)) return refuse(" has no meaning");
  const bool is_whole = a.as_number() == nullptr && b.as_number() == nullptr;
  const bool divides = sign == "/" || sign == "//" || sign == "%";
  if (divides && y == 0.0) return refuse(" divides by zero");
  if (sign == "/") return Value::number(x / y);
  if (sign == "**") {
    const double power = std::pow(x, y);
    if (!is_whole || y < 0.0) return Value::number(power);
    if (!(std::fabs(power) < 9.0e15)) return refuse(" is too large");
    return Value::integer(static_cast<std::int64_t>(power));
  }
  if (!is_whole) {
    if (sign == "+") return Value::number(x + y);
    if (sign == "-") return Value::number(x - y);
    if (sign == "*") return Value::number(x * y);
    if (sign == "//") return Value::number(std::floor(x / y));
    return Value::number(x - y * std::floor(x / y));
  }
  const auto whole = [](const Value& value) {
    return value.as_truth() != nullptr ? std::int64_t{*value.as_truth()} : *value.as_integer();
  };
  const std::int64_t i = whole(a);
  const std::int64_t j = whole(b);
  if (divides && j == -1 && i == INT64_MIN) return refuse(" is too large");
  if (sign == "//") return Value::integer(floor_quotient(i, j));
  if (sign == "%") return Value::integer(i - j * floor_quotient(i, j));
  try {
    return Value::integer(whole_arithmetic(sign.front(), i, j));
  } catch (const IntegerOverflow&) {
    return refuse(" is too large");
  }
}

bool Run::is_in(const Value& value, const Value& container) {
  if (const std::string* text = container.as_text()) {
    pay_text(text->size());
    return text->find(text_argument(value, "in a text")) != std::string::npos;
  }
  if (const Mapping* mapping = container.as_mapping()) {
    pay(static_cast<std::int64_t>(mapping->entries.size()));
    return value.as_text() != nullptr && mapping->find(*value.as_text()) != nullptr;
  }
  for (const Value& item : items_of(container)) {
    pay(std::min(item.weight(), value.weight()));
    if (are_equal(item, value)) return true;
  }
  return false;
}

bool Run::evaluate_compare(const Expression& node, Scope& scope) {
  Value left = evaluate(*node.parts[0], scope);
  for (std::size_t i = 0; i < node.words.size(); ++i) {
    const Value right = evaluate(*node.parts[i + 1], scope);
    const std::string& word = node.words[i];
    pay(std::min(left.weight(), right.weight()));
    const bool holds = word == "=="       ? are_equal(left, right)
                       : word == "!="     ? !are_equal(left, right)
                       : word == "in"     ? is_in(left, right)
                       : word == "not in" ? !is_in(left, right)
                       : word == "<"      ? is_less(left, right)
                       : word == ">"      ? is_less(right, left)
                       : word == "<="     ? !is_less(right, left)
                                          : !is_less(left, right);
    if (!holds) return false;
    left = right;
  }
  return true;
}

Value Run::attribute(const Value& of, const std::string& name) {
  if (of.is_undefined())
    throw FormatError(fmt::format("there is no {} of an undefined value", name));
  const Mapping* mapping = of.as_mapping();
  if (mapping == nullptr) return Value::undefined(name);
  pay(static_cast<std::int64_t>(mapping->entries.size() / 4));
  const Value* found = mapping->find(name);
  return found != nullptr ? *found : Value::undefined(name);
}

Value Run::item(const Value& of, const Value& key) {
  if (of.is_undefined()) throw FormatError("there is no item of an undefined value");
  if (const std::string* name = key.as_text()) return attribute(of, *name);
  const std::int64_t* place = key.as_integer();
  if (place == nullptr) return Value::undefined("an item");
  const auto at = [&](std::int64_t n) { return *place < 0 ? *place + n : *place; };
  if (const List* list = of.as_list()) {
    const auto n = static_cast<std::int64_t>(list->items.size());
    if (at(n) < 0 || at(n) >= n) return Value::undefined(fmt::format("item {}", *place));
    return list->items[static_cast<std::size_t>(at(n))];
  }
  if (const std::string* text_of = of.as_text()) {
    pay_text(text_of->size());
    const std::int64_t n = length_of(*text_of);
    if (at(n) < 0 || at(n) >= n) return Value::undefined(fmt::format("item {}", *place));
    std::size_t byte = 0;
    for (std::int64_t i = 0; i < at(n); ++i) byte += utf8_char_at(*text_of, byte).size;
    return text(text_of->substr(byte, utf8_char_at(*text_of, byte).size));
  }
  return Value::undefined(fmt::format("item {}", *place));
}

Value Run::evaluate_slice(const Expression& node, Scope& scope) {
  const Value of = evaluate(*node.parts[0], scope);
  std::optional<std::int64_t> bounds[3];
  for (std::size_t i = 0; i < 3; ++i) {
    if (!node.parts[i + 1]) continue;
    const Value bound = evaluate(*node.parts[i + 1], scope);
    if (!bound.is_none()) bounds[i] = integer_argument(bound, "a slice");
  }
  const std::int64_t step = bounds[2].value_or(1);
  if (step == 0) throw FormatError("a slice has step 0");
  if (const std::string* text_of = of.as_text()) {
    pay_text(8 * text_of->size());
    std::vector<std::string_view> characters;
    for (std::size_t at = 0; at < text_of->size();) {
      const std::size_t size = utf8_char_at(*text_of, at).size;
      characters.push_back(std::string_view(*text_of).substr(at, size));
      at += size;
    }
    std::string out;
    for (const std::int64_t place :
         slice_places(static_cast<std::int64_t>(characters.size()), bounds[0], bounds[1], step))
      out += characters[static_cast<std::size_t>(place)];
    return text(std::move(out));
  }
  const std::vector<Value> items = items_of(of);
  if (of.as_list() == nullptr) throw FormatError(fmt::format("{} has no slices", of.kind()));
  std::vector<Value> out;
  for (const std::int64_t place :
       slice_places(static_cast<std::int64_t>(items.size()), bounds[0], bounds[1], step))
    out.push_back(items[static_cast<std::size_t>(place)]);
  return Value::list(std::move(out));
}

Arguments Run::arguments_of(const Expression& node, Scope& scope) {
  Arguments arguments;
  for (const auto& [name, value] : node.arguments) {
    if (name.empty())
      arguments.values.push_back(evaluate(*value, scope));
    else
      arguments.named.emplace_back(name, evaluate(*value, scope));
  }
  return arguments;
}

}  // namespace kvscope::jinja

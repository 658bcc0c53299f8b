// Expressions of a running template.

#include <algorithm>

#include "core/base/error.hpp"
#include "core/model/chat/jinja_run.hpp"

namespace kvscope::jinja {

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
  if (depth_ >= kMostCalls) throw FormatError("calls nest more than {} levels deep", kMostCalls);
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

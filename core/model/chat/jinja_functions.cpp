// What a template can call: macros and global functions; jinja_methods.cpp has the methods.

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/model/chat/jinja_run.hpp"

namespace kvscope::jinja {

namespace {

constexpr std::int64_t kMostRange = 100'000;  // as Jinja's sandbox

/// The day that templates are told: always the same, so that a command gives the same prompt
/// tomorrow.
constexpr std::pair<char, std::string_view> kDate[] = {
    {'d', "26"}, {'b', "Jul"},    {'B', "July"}, {'Y', "2024"}, {'m', "07"},
    {'y', "24"}, {'A', "Friday"}, {'a', "Fri"},  {'H', "12"},   {'M', "00"},
    {'S', "00"}, {'j', "208"},    {'%', "%"}};

std::string date_text(std::string_view format) {
  std::string out;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out += format[i];
      continue;
    }
    const char sign = format[++i];
    const auto* const found = std::find_if(std::begin(kDate), std::end(kDate),
                                           [&](const auto& entry) { return entry.first == sign; });
    if (found == std::end(kDate)) throw FormatError("strftime_now: %{} is not known here", sign);
    out += found->second;
  }
  return out;
}

}  // namespace

Value Run::evaluate_call(const Expression& node, Scope& scope) {
  const Expression& callee = *node.parts.front();
  const bool is_method =
      callee.kind == ExpressionKind::attribute || callee.kind == ExpressionKind::item;
  if (callee.kind == ExpressionKind::attribute) {
    const Value of = evaluate(*callee.parts.front(), scope);
    const Mapping* mapping = of.as_mapping();
    const Value* field = mapping == nullptr ? nullptr : mapping->find(callee.text);
    if (field == nullptr || field->as_function() == nullptr) {
      const Arguments arguments = arguments_of(node, scope);
      line_ = node.line;
      return call_method(of, callee.text, arguments);
    }
  }
  const Value value = evaluate(callee, scope);
  const Arguments arguments = arguments_of(node, scope);
  line_ = node.line;
  const Function* function = value.as_function();
  if (function == nullptr) {
    const std::string name = is_method || callee.text.empty() ? "a value" : callee.text;
    throw FormatError("{} is called, but it is {}", name,
                      value.is_undefined() ? "undefined" : value.kind());
  }
  if (function->macro != nullptr) return call_macro(*function->macro, arguments);
  return call_function(function->name, arguments);
}

Value Run::call_macro(const Macro& macro, const Arguments& arguments) {
  if (arguments.values.size() > macro.parameters.size())
    throw FormatError("macro {}: expected at most {} arguments, found {}", macro.name,
                      macro.parameters.size(), arguments.values.size());
  Scope inner{{}, &root_};
  for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
    const auto& [name, fallback] = macro.parameters[i];
    const Value* given = arguments.find(i, name);
    inner.names[name] = given != nullptr ? *given
                        : fallback       ? evaluate(*fallback, inner)
                                         : Value::undefined(name);
  }
  std::string out;
  execute(macro.body, inner, out);
  return text(std::move(out));
}

Value Run::call_function(const std::string& name, const Arguments& arguments) {
  if (name == "raise_exception") {
    const Value* why = arguments.find(0, "message");
    throw FormatError("it refuses the conversation: {}",
                      quote(why == nullptr ? "" : shown(*why), 200));
  }
  if (name == "strftime_now") {
    const Value* format = arguments.find(0, "format");
    if (format == nullptr) throw FormatError("strftime_now: expected a format, found nothing");
    return text(date_text(text_argument(*format, name)));
  }
  if (name == "namespace" || name == "dict") {
    std::vector<Entry> entries;
    if (!arguments.values.empty()) {
      if (const Mapping* mapping = arguments.values.front().as_mapping())
        entries = mapping->entries;
    }
    for (const Entry& entry : arguments.named) {
      const auto at = std::find_if(entries.begin(), entries.end(),
                                   [&](const Entry& old) { return old.first == entry.first; });
      if (at == entries.end())
        entries.push_back(entry);
      else
        at->second = entry.second;
    }
    pay(static_cast<std::int64_t>(entries.size()));
    if (name == "dict") return Value::mapping(std::move(entries));
    auto space = std::make_shared<Namespace>();
    space->fields.entries = std::move(entries);
    namespaces_.push_back(space);
    return {Value::Held(std::move(space))};
  }
  // range
  std::int64_t bounds[3] = {0, 0, 1};
  const std::size_t n = arguments.values.size();
  if (n < 1 || n > 3) throw FormatError("range: expected 1 to 3 numbers, found {}", n);
  for (std::size_t i = 0; i < n; ++i)
    bounds[n == 1 ? 1 : i] = integer_argument(arguments.values[i], name);
  const auto [begin, end, step] = bounds;
  if (step == 0) throw FormatError("range: its step is 0");
  const double steps =
      (static_cast<double>(end) - static_cast<double>(begin)) / static_cast<double>(step);
  if (steps > static_cast<double>(kMostRange))
    throw FormatError("range: expected at most {} numbers", kMostRange);
  std::vector<Value> numbers;
  for (std::int64_t at = begin; step > 0 ? at < end : at > end; at += step) {
    pay(1);
    numbers.push_back(Value::integer(at));
    if (static_cast<double>(numbers.size()) >= steps) break;  // the next could overflow
  }
  return Value::list(std::move(numbers));
}

}  // namespace kvscope::jinja

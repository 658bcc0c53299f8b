// Filters.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.hpp"
#include "core/base/number_text.hpp"
#include "core/model/chat/jinja_run.hpp"

namespace kvscope::jinja {

namespace {

std::string indented(std::string_view value, std::string_view indent, bool first, bool blank) {
  const std::vector<std::string> lines = lines_of(std::string(value) + "\n");
  std::string out;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    if (i == 0 ? first : blank || !lines[i].empty()) out += indent;
    out += lines[i];
  }
  return out;
}

bool is_flag(const Value* value) {
  return value != nullptr && value->is_true();
}

/// By lower-case letters where both are texts, as Jinja sorts.
bool sorts_before(const Value& a, const Value& b) {
  if (a.as_text() != nullptr && b.as_text() != nullptr)
    return recased(*a.as_text(), "lower") < recased(*b.as_text(), "lower");
  return is_less(a, b);
}

}  // namespace

Value Run::filter(const std::string& name, const Value& value, const Arguments& arguments) {
  if (name == "default" || name == "d") {
    const bool is_missing =
        value.is_undefined() || (is_flag(arguments.find(1, "boolean")) && !value.is_true());
    if (!is_missing) return value;
    const Value* fallback = arguments.find(0, "default_value");
    return fallback != nullptr ? *fallback : Value::text("");
  }
  if (name == "tojson") return text(json_text(*this, value, arguments));
  if (name == "string") return Value::text(shown(value));
  if (name == "safe") return value;
  if (name == "abs")
    return is_less(value, Value::integer(0)) ? arithmetic("-", Value::integer(0), value) : value;
  if (name == "int" || name == "float") {
    const std::string* word = value.as_text();
    double number = 0.0;
    const Value* fallback = arguments.find(0, "default");
    const auto parsed = word == nullptr ? std::optional<double>()
                                        : number_from<double>(stripped(*word, nullptr, true, true));
    if (!value.get_number(number) && !parsed)
      return fallback != nullptr ? *fallback
             : name == "int"     ? Value::integer(0)
                                 : Value::number(0.0);
    if (parsed) number = *parsed;
    if (name == "float") return Value::number(number);
    if (value.is_integer()) return value;
    if (!(std::fabs(number) < 9.0e15)) throw FormatError("int: the number is too large");
    return Value::integer(static_cast<std::int64_t>(number));
  }
  if (name == "round") {
    double number = 0.0;
    if (!value.get_number(number)) throw FormatError("round: expected a number");
    const Value* digits = arguments.find(0, "precision");
    const double scale = std::pow(
        10.0, digits == nullptr ? 0.0 : static_cast<double>(integer_argument(*digits, name)));
    return Value::number(std::nearbyint(number * scale) / scale);
  }
  if (name == "length" || name == "count") {
    if (const std::string* of = value.as_text()) {
      pay_text(of->size());
      return Value::integer(length_of(*of));
    }
    if (const Mapping* mapping = value.as_mapping())
      return Value::integer(static_cast<std::int64_t>(mapping->entries.size()));
    return Value::integer(static_cast<std::int64_t>(items_of(value).size()));
  }
  if (auto made = filter_text(name, value, arguments)) return *std::move(made);
  if (auto made = filter_list(name, value, arguments)) return *std::move(made);
  throw FormatError("filter {} is not known here", name);
}

std::optional<Value> Run::filter_text(const std::string& name, const Value& value,
                                      const Arguments& arguments) {
  const auto as_text = [&] { return shown(value); };
  if (name == "trim") {
    const Value* signs = arguments.find(0, "chars");
    const bool has_signs = signs != nullptr && !signs->is_none();
    return text(std::string(
        stripped(as_text(), has_signs ? &text_argument(*signs, name) : nullptr, true, true)));
  }
  if (name == "upper" || name == "lower" || name == "title" || name == "capitalize")
    return text(recased(as_text(), name));
  if (name == "replace") return call_method(Value::text(as_text()), "replace", arguments);
  if (name == "indent") {
    const Value* width = arguments.find(0, "width");
    std::string indent(4, ' ');
    if (width != nullptr && width->as_text() != nullptr) {
      indent = *width->as_text();
    } else if (width != nullptr) {
      const std::int64_t n = std::max<std::int64_t>(0, integer_argument(*width, name));
      pay(n);
      indent.assign(static_cast<std::size_t>(n), ' ');
    }
    const std::string of = as_text();
    const auto n_lines = 1 + static_cast<std::size_t>(std::count_if(
                                 of.begin(), of.end(), [](char c) { return c >= 0 && c < ' '; }));
    pay_text(of.size() + n_lines * indent.size());
    return Value::text(indented(of, indent, is_flag(arguments.find(1, "first")),
                                is_flag(arguments.find(2, "blank"))));
  }
  return std::nullopt;
}

std::optional<Value> Run::filter_list(const std::string& name, const Value& value,
                                      const Arguments& arguments) {
  if (name == "list") return Value::list(items_of(value));
  if (name == "items") {
    if (value.is_undefined()) return Value::list({});
    return call_method(value, "items", {});
  }
  if (name == "first" || name == "last") {
    const std::vector<Value> items = items_of(value);
    if (items.empty()) return Value::undefined(fmt::format("the {} item", name));
    return name == "first" ? items.front() : items.back();
  }
  if (name == "join") {
    const Value* between = arguments.find(0, "d");
    const Value* path = arguments.find(1, "attribute");
    const std::string word = between == nullptr ? "" : shown(*between);
    std::string out;
    bool is_first = true;
    for (const Value& item : items_of(value)) {
      if (!is_first) append(out, word);
      is_first = false;
      append(out, shown(path == nullptr ? item : attribute_path(item, text_argument(*path, name))));
    }
    return Value::text(std::move(out));
  }
  if (name == "reverse") {
    std::vector<Value> items = items_of(value);
    std::reverse(items.begin(), items.end());
    if (value.as_text() == nullptr) return Value::list(std::move(items));
    return filter("join", Value::list(std::move(items)), {});
  }
  if (name == "sort" || name == "dictsort") {
    const Value source = name == "sort" ? value : call_method(value, "items", {});
    std::vector<Value> items = items_of(source);
    const Value* path = name == "sort" ? arguments.find(2, "attribute") : nullptr;
    constexpr std::int64_t kSortSteps = 24;  // comparisons per item, each of any weight
    for (const Value& item : items) pay(kSortSteps * item.weight());
    const auto key = [&](const Value& item) {
      if (name == "dictsort") return item.as_list()->items.front();
      return path == nullptr ? item : attribute_path(item, text_argument(*path, name));
    };
    std::stable_sort(items.begin(), items.end(),
                     [&](const Value& a, const Value& b) { return sorts_before(key(a), key(b)); });
    if (name == "sort" && is_flag(arguments.find(0, "reverse")))
      std::reverse(items.begin(), items.end());
    return Value::list(std::move(items));
  }
  if (name == "unique") {
    std::vector<Value> kept;
    for (const Value& item : items_of(value)) {
      pay(static_cast<std::int64_t>(kept.size()) * item.weight());
      if (std::none_of(kept.begin(), kept.end(),
                       [&](const Value& other) { return are_equal(item, other); }))
        kept.push_back(item);
    }
    return Value::list(std::move(kept));
  }
  if (name == "min" || name == "max") {
    const std::vector<Value> items = items_of(value);
    if (items.empty()) return Value::undefined(fmt::format("the {} of nothing", name));
    const auto before = [&](const Value& a, const Value& b) {
      pay(std::min(a.weight(), b.weight()));
      return sorts_before(a, b);
    };
    return name == "min" ? *std::min_element(items.begin(), items.end(), before)
                         : *std::max_element(items.begin(), items.end(), before);
  }
  if (name == "sum") {
    Value sum = Value::integer(0);
    for (const Value& item : items_of(value)) sum = arithmetic("+", sum, item);
    return sum;
  }
  // Of what counts as false, none included, these three make an empty list.
  if (name == "map") return filter_map(value.is_true() ? value : Value(), arguments);
  if (name == "select" || name == "reject" || name == "selectattr" || name == "rejectattr")
    return filter_selected(name, value.is_true() ? value : Value(), arguments);
  return std::nullopt;
}

Value Run::filter_map(const Value& value, const Arguments& arguments) {
  std::vector<Value> out;
  const Value* path = arguments.find(arguments.values.size(), "attribute");
  const Value* fallback = arguments.find(arguments.values.size(), "default");
  for (const Value& item : items_of(value)) {
    if (path != nullptr) {
      Value found = attribute_path(item, text_argument(*path, "map"));
      if (found.is_undefined() && fallback != nullptr) found = *fallback;
      out.push_back(std::move(found));
    } else if (!arguments.values.empty()) {
      const Arguments rest{{arguments.values.begin() + 1, arguments.values.end()}, arguments.named};
      pay(static_cast<std::int64_t>(rest.values.size() + rest.named.size()));
      out.push_back(filter(text_argument(arguments.values.front(), "map"), item, rest));
    } else {
      throw FormatError("map: expected a filter's name or attribute=");
    }
  }
  return Value::list(std::move(out));
}

Value Run::filter_selected(const std::string& name, const Value& value,
                           const Arguments& arguments) {
  const bool by_attribute = name.ends_with("attr");
  const bool wanted = name.starts_with("select");
  const std::size_t n_before = by_attribute ? 1 : 0;
  if (arguments.values.size() < n_before)
    throw FormatError("{}: expected an attribute's name", name);
  Arguments rest;
  for (std::size_t i = n_before + 1; i < arguments.values.size(); ++i)
    rest.values.push_back(arguments.values[i]);
  std::vector<Value> kept;
  for (const Value& item : items_of(value)) {
    const Value looked_at =
        by_attribute ? attribute_path(item, text_argument(arguments.values.front(), name)) : item;
    const bool holds = arguments.values.size() > n_before
                           ? test(text_argument(arguments.values[n_before], name), looked_at, rest)
                           : looked_at.is_true();
    if (holds == wanted) kept.push_back(item);
  }
  return Value::list(std::move(kept));
}

}  // namespace kvscope::jinja

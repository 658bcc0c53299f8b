// Tests: what stands behind "is".

#include <algorithm>

#include "core/base/error.hpp"
#include "core/model/chat/jinja_run.hpp"

namespace kvscope::jinja {

bool Run::test(const std::string& name, const Value& value, const Arguments& arguments) {
  const auto other = [&]() -> const Value& {
    const Value* found = arguments.find(0, "other");
    if (found == nullptr) throw FormatError("test {}: an argument is missing", name);
    pay(std::min(found->weight(), value.weight()));
    return *found;
  };
  if (name == "defined") return !value.is_undefined();
  if (name == "undefined") return value.is_undefined();
  if (name == "none") return value.is_none();
  if (name == "string") return value.as_text() != nullptr;
  if (name == "mapping") return value.as_mapping() != nullptr && value.as_namespace() == nullptr;
  if (name == "boolean") return value.as_truth() != nullptr;
  if (name == "true") return value.as_truth() != nullptr && *value.as_truth();
  if (name == "false") return value.as_truth() != nullptr && !*value.as_truth();
  if (name == "integer") return value.is_integer();
  if (name == "float") return value.as_number() != nullptr;
  if (name == "callable") return value.as_function() != nullptr;
  double number = 0.0;
  if (name == "number") return value.get_number(number);
  const bool has_items = value.as_text() != nullptr || value.as_list() != nullptr ||
                         (value.as_mapping() != nullptr && value.as_namespace() == nullptr);
  if (name == "sequence" || name == "iterable") return has_items || value.is_undefined();
  if (name == "odd" || name == "even")
    return (integer_argument(value, name) % 2 != 0) == (name == "odd");
  if (name == "divisibleby") {
    const std::int64_t by = integer_argument(other(), name);
    if (by == 0) throw FormatError("test divisibleby: by zero");
    return by == -1 || integer_argument(value, name) % by == 0;
  }
  if (name == "lower" || name == "upper") {
    const std::string& text_of = text_argument(value, name);
    pay_text(text_of.size());
    const std::string_view opposite = name == "lower" ? "upper" : "lower";
    return recased(text_of, name) == text_of && recased(text_of, opposite) != text_of;
  }
  if (name == "in") return is_in(value, other());
  if (name == "sameas" || name == "equalto" || name == "eq") return are_equal(value, other());
  if (name == "ne") return !are_equal(value, other());
  if (name == "lt" || name == "lessthan") return is_less(value, other());
  if (name == "gt" || name == "greaterthan") return is_less(other(), value);
  if (name == "ge") return !is_less(value, other());
  if (name == "le") return !is_less(other(), value);
  throw FormatError("test {} is not known here", name);
}

}  // namespace kvscope::jinja

#include "core/base/fields.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>

namespace kvscope {

std::string snake_case(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

namespace detail {

namespace {
thread_local OptionRecorder* looking_on = nullptr;
}  // namespace

OptionRecorder* option_recorder() {
  return looking_on;
}

OptionRecorder::OptionRecorder(std::byte* object, std::size_t size)
    : object_(object), size_(size), outer_(std::exchange(looking_on, this)) {}

OptionRecorder::~OptionRecorder() {
  looking_on = outer_;
}

void OptionRecorder::add(const void* member, Option option) {
  const auto at = static_cast<const std::byte*>(member) - object_;
  // An object that the recorded one only makes along the way lies elsewhere.
  if (at < 0 || at >= static_cast<std::ptrdiff_t>(size_)) return;
  option.at = at;
  options_.push_back(option);
}

int find_name(std::span<const std::string_view> names, std::string_view text) {
  const auto in_lower_case = [](std::string_view word) {
    std::string lower(word);
    std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
    return lower;
  };
  auto found = std::find(names.begin(), names.end(), text);
  if (found == names.end())
    found = std::ranges::find(names, in_lower_case(text), in_lower_case);  // "NeurIPS"
  return found == names.end() ? -1 : static_cast<int>(found - names.begin());
}

}  // namespace detail

void check_fields(std::span<const Option> options, const void* object) {
  // Values are only read.
  visit_fields(options, const_cast<void*>(object), [](const Field& field, const auto& value) {
    using T = std::remove_cvref_t<decltype(value)>;
    if constexpr (std::is_arithmetic_v<T> && !std::same_as<T, bool>) {
      const auto x = static_cast<double>(value);
      if (x >= field.min && x <= field.max) return;
      const bool is_open = std::isinf(field.max);
      throw ConfigError(
          "{}: expected {} {}, found {}", field.name, is_open ? "at least" : "a value in",
          is_open ? fmt::format("{}", field.min) : fmt::format("[{}, {}]", field.min, field.max),
          value);
    }
  });
}

}  // namespace kvscope

// What metadata fields are asked for, with their refusals.
#include <fmt/format.h>

#include <cmath>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/model/gguf/gguf_file.hpp"

namespace kvscope {

std::string describe(const GgufValue& value) {
  struct Words {
    std::string operator()(std::uint64_t x) const { return fmt::format("{}", x); }
    std::string operator()(std::int64_t x) const { return fmt::format("{}", x); }
    std::string operator()(double x) const { return fmt::format("{}", x); }
    std::string operator()(bool x) const { return x ? "true" : "false"; }
    std::string operator()(std::string_view x) const { return quote(x); }
    std::string operator()(const GgufArray& x) const {
      return fmt::format("a list of {} {}", x.size(), x.holds_strings ? "strings" : "numbers");
    }
  };
  return std::visit(Words{}, value);
}

bool GgufMetadata::add(std::string_view name, GgufValue value) {
  return values_.try_emplace(std::string(name), std::move(value)).second;
}

void GgufMetadata::refuse(std::string_view name, std::string_view expected) const {
  const auto it = values_.find(name);
  throw FormatError("{} ({}): expected {}, found {}", name, file_, expected,
                    it == values_.end() ? "nothing" : describe(it->second));
}

const GgufValue* GgufMetadata::value(std::string_view name) const {
  const auto it = values_.find(name);
  if (it == values_.end()) return nullptr;
  asked_.emplace(name);
  return &it->second;
}

std::vector<std::string> GgufMetadata::unread(std::string_view prefix) const {
  std::vector<std::string> names;
  for (const auto& [name, value] : values_) {
    if (name.starts_with(prefix) && !asked_.contains(name)) names.push_back(name);
  }
  return names;
}

template <class T>
const T* GgufMetadata::find(std::string_view name, std::string_view expected) const {
  const GgufValue* any = value(name);
  if (any == nullptr) return nullptr;
  const T* found = std::get_if<T>(any);
  if (found == nullptr) refuse(name, expected);
  return found;
}

std::optional<std::int64_t> GgufMetadata::integer(std::string_view name, std::int64_t low,
                                                  std::int64_t high) const {
  const GgufValue* any = value(name);
  if (any == nullptr) return std::nullopt;
  const auto expected = [&] { return fmt::format("a whole number from {} to {}", low, high); };
  if (const auto* u = std::get_if<std::uint64_t>(any)) {
    if (std::cmp_less(*u, low) || std::cmp_greater(*u, high)) refuse(name, expected());
    return static_cast<std::int64_t>(*u);
  }
  const auto* i = std::get_if<std::int64_t>(any);
  if (i == nullptr || *i < low || *i > high) refuse(name, expected());
  return *i;
}

std::optional<double> GgufMetadata::number(std::string_view name) const {
  const GgufValue* any = value(name);
  if (any == nullptr) return std::nullopt;
  if (const auto* u = std::get_if<std::uint64_t>(any)) return static_cast<double>(*u);
  if (const auto* i = std::get_if<std::int64_t>(any)) return static_cast<double>(*i);
  const auto* x = std::get_if<double>(any);
  if (x == nullptr || !std::isfinite(*x)) refuse(name, "a finite number");
  return *x;
}

std::optional<bool> GgufMetadata::boolean(std::string_view name) const {
  const bool* value = find<bool>(name, "true or false");
  return value == nullptr ? std::nullopt : std::optional<bool>(*value);
}

std::optional<std::string_view> GgufMetadata::string(std::string_view name) const {
  const auto* value = find<std::string_view>(name, "a string");
  return value == nullptr ? std::nullopt : std::optional<std::string_view>(*value);
}

const std::vector<std::string_view>* GgufMetadata::strings(std::string_view name) const {
  const auto* array = find<GgufArray>(name, "a list of strings");
  if (array == nullptr) return nullptr;
  if (!array->holds_strings && array->size() > 0) refuse(name, "a list of strings");
  return &array->strings;
}

const std::vector<double>* GgufMetadata::numbers(std::string_view name) const {
  const auto* array = find<GgufArray>(name, "a list of numbers");
  if (array == nullptr) return nullptr;
  if (array->holds_strings) refuse(name, "a list of numbers");
  return &array->numbers;
}

}  // namespace kvscope

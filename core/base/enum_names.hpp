// The names of an enum's values: its identifiers, read off the compiler, so that no table of words
// stands beside the enum. Specialise EnumNames where a word is no identifier.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

namespace kvscope {

namespace detail {

constexpr std::size_t kMostEnumerators = 64;

/// "unit" of Anchor::unit; empty if no enumerator has this value, which compilers write as a cast.
template <auto kValue>
constexpr std::string_view enumerator_name() {
  std::string_view text = __PRETTY_FUNCTION__;  // "... kValue = kvscope::Anchor::unit]"
  text.remove_prefix(text.find("kValue = ") + 9);
  text = text.substr(0, text.find_first_of(";]"));
  if (text.front() == '(') return {};
  return text.substr(text.rfind(':') + 1);
}

template <class E, std::size_t... kPlaces>
constexpr auto enumerator_names(std::index_sequence<kPlaces...>) {
  return std::array<std::string_view, sizeof...(kPlaces)>{
      enumerator_name<static_cast<E>(kPlaces)>()...};
}

/// How many values, from 0 without a gap, have a name.
template <class E, std::size_t kCount = 0>
constexpr std::size_t count_enumerators() {
  if constexpr (kCount == kMostEnumerators || enumerator_name<static_cast<E>(kCount)>().empty()) {
    return kCount;
  } else {
    return count_enumerators<E, kCount + 1>();
  }
}

}  // namespace detail

/// Texts of an enum's values, in order from 0.
template <class E>
struct EnumNames {
  static constexpr auto value =
      detail::enumerator_names<E>(std::make_index_sequence<detail::count_enumerators<E>()>());
};

template <class E>
requires std::is_enum_v<E>
constexpr std::string_view enum_name(E value) {
  return EnumNames<E>::value[static_cast<std::size_t>(value)];
}

/// The value of that name; empty if there is none.
template <class E>
requires std::is_enum_v<E>
constexpr std::optional<E> enum_from_name(std::string_view name) {
  const auto& names = EnumNames<E>::value;
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) return std::nullopt;
  return static_cast<E>(found - names.begin());
}

}  // namespace kvscope

// Options structs as JSON: apart from fields.hpp, since JSON's header is slow to compile.
#pragma once

#include <concepts>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>

#include "core/base/error.hpp"
#include "core/base/fields.hpp"

namespace kvscope {

/// All fields as a JSON object, in order; keys in snake_case.
template <class Options>
nlohmann::ordered_json fields_to_json(const Options& options) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  visit_fields(options, [&](const Field& field, const auto& value) {
    if constexpr (std::same_as<std::remove_cvref_t<decltype(value)>, EnumRef>) {
      json[snake_case(field.name)] = std::string(value.name());
    } else {
      json[snake_case(field.name)] = value;
    }
  });
  return json;
}

/// The other way; what is missing keeps its value. Returns how many fields were there: unknown keys
/// are left alone. Throws ConfigError naming a field of the wrong type.
template <class AnyJson, class Options>
std::size_t fields_from_json(const AnyJson& json, Options& options) {
  if (!json.is_object()) throw ConfigError("expected an object of options");
  std::size_t n_found = 0;
  visit_fields(options, [&](const Field& field, auto& value) {
    using T = std::remove_cvref_t<decltype(value)>;
    constexpr bool kIsText = std::same_as<T, EnumRef> || std::same_as<T, std::string>;
    const auto found = json.find(snake_case(field.name));
    if (found == json.end()) return;
    ++n_found;
    if (found->is_string() != kIsText)
      throw ConfigError("{}: expected {}, found {}", field.name, expected_text(value),
                        found->dump());
    parse_field(field, kIsText ? found->template get<std::string>() : found->dump(), value);
  });
  return n_found;
}

}  // namespace kvscope

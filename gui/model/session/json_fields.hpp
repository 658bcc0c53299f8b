// Option structs out of JSON, the other way of fields_to_json: what is missing keeps its value.
#pragma once

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/base/fields.hpp"

namespace kvscope::gui {

/// Throws ConfigError naming a field of the wrong type. Unknown keys are left alone: a newer
/// version wrote them.
template <class Options>
void fields_from_json(const nlohmann::ordered_json& json, Options& options) {
  if (!json.is_object()) throw ConfigError("expected an object of options");
  visit_fields(options, [&](const Field& field, auto& value) {
    using T = std::remove_cvref_t<decltype(value)>;
    const std::string key = snake_case(field.name);
    if (!json.contains(key)) return;
    const auto& found = json[key];
    const auto fail = [&] {
      throw ConfigError("{}: expected {}, found {}", key, expected_text(value), found.dump());
    };
    if constexpr (std::same_as<T, EnumRef> || std::same_as<T, std::string>) {
      if (!found.is_string()) fail();
      parse_field(field, found.template get<std::string>(), value);
    } else if constexpr (std::same_as<T, bool>) {
      if (!found.is_boolean()) fail();
      value = found.template get<bool>();
    } else {
      if (!(std::integral<T> ? found.is_number_integer() : found.is_number())) fail();
      value = found.template get<T>();
    }
  });
}

}  // namespace kvscope::gui

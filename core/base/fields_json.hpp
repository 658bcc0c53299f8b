// Options structs as JSON: apart from fields.hpp, since JSON's header is slow to compile.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>

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

}  // namespace kvscope

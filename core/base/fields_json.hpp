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
  Options::visit_fields(options, [&](const Field& field, const auto& value) {
    using T = std::remove_cvref_t<decltype(value)>;
    std::string key(field.name);
    for (char& c : key) c = c == '-' ? '_' : c;
    if constexpr (std::is_enum_v<T>) {
      json[key] = std::string(enum_name(value));
    } else {
      json[key] = value;
    }
  });
  return json;
}

}  // namespace kvscope

// JSON whose objects keep the order in which they were filled, as reports and files here have it.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "core/base/nan.hpp"

namespace kvscope {

using Json = nlohmann::ordered_json;

template <class T>
Json or_null(const std::optional<T>& x) {
  return x ? Json(*x) : Json(nullptr);
}

/// As text, on one line unless `indent` says how far levels are apart. Bytes of names and tokens
/// that are no UTF-8 become U+FFFD.
inline std::string json_text(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

// Cells of rows, whatever a file that was not written by us holds there.

/// The word under `key`; `fallback` if there is none.
inline std::string text_at(const Json& row, const std::string& key,
                           const std::string& fallback = "") {
  return row.is_object() && row.contains(key) && row[key].is_string() ? row[key].get<std::string>()
                                                                      : fallback;
}

/// The number under `key`; NaN if there is none.
inline double number_at(const Json& row, const std::string& key) {
  return row.is_object() && row.contains(key) && row[key].is_number() ? row[key].get<double>()
                                                                      : kNan;
}

/// summary["totals"]; an empty object if there is none.
inline Json totals_of(const Json& summary) {
  const auto none = Json::object();
  return summary.is_object() ? summary.value("totals", none) : none;
}

/// summary[key] if it is a list that is not empty, else null.
inline const Json* list_at(const Json& summary, const std::string& key) {
  if (!summary.is_object() || !summary.contains(key) || !summary[key].is_array() ||
      summary[key].empty())
    return nullptr;
  return &summary[key];
}

}  // namespace kvscope

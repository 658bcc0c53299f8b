// Cells of a summary's rows, whatever a file that was not written by us holds there.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "core/base/nan.hpp"

namespace kvscope::figures {

/// The word under `key`; `fallback` if there is none.
inline std::string text_at(const nlohmann::ordered_json& row, const std::string& key,
                           const std::string& fallback = "") {
  return row.is_object() && row.contains(key) && row[key].is_string() ? row[key].get<std::string>()
                                                                      : fallback;
}

/// The number under `key`; NaN if there is none.
inline double number_at(const nlohmann::ordered_json& row, const std::string& key) {
  return row.is_object() && row.contains(key) && row[key].is_number() ? row[key].get<double>()
                                                                      : kNan;
}

/// summary["totals"]; an empty object if there is none.
inline nlohmann::ordered_json totals_of(const nlohmann::ordered_json& summary) {
  const auto none = nlohmann::ordered_json::object();
  return summary.is_object() ? summary.value("totals", none) : none;
}

/// summary[key] if it is a list that is not empty, else null.
inline const nlohmann::ordered_json* list_at(const nlohmann::ordered_json& summary,
                                             const std::string& key) {
  if (!summary.is_object() || !summary.contains(key) || !summary[key].is_array() ||
      summary[key].empty())
    return nullptr;
  return &summary[key];
}

}  // namespace kvscope::figures

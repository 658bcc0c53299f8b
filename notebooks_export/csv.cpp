#include "notebooks_export/csv.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/error.hpp"

namespace kvscope {

namespace {

std::string field_of(const nlohmann::ordered_json& value) {
  if (value.is_string()) return csv_field(value.get_ref<const std::string&>());
  if (value.is_null()) return "";
  if (value.is_number_float() && !std::isfinite(value.get<double>())) return "";
  return value.dump();
}

}  // namespace

std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string out = "\"";
  for (char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + "\"";
}

std::string csv_from_rows(const nlohmann::ordered_json& rows) {
  const auto is_row = [](const auto& row) { return row.is_object(); };
  if (!rows.is_array() || !std::all_of(rows.begin(), rows.end(), is_row)) {
    throw ConfigError("a CSV table needs an array of objects");
  }
  std::vector<std::string> columns;
  for (const auto& row : rows) {
    for (const auto& [key, value] : row.items()) {
      if (!value.is_structured() &&
          std::find(columns.begin(), columns.end(), key) == columns.end()) {
        columns.push_back(key);
      }
    }
  }
  std::string out;
  const auto add_line = [&](auto&& field_at) {
    for (std::size_t c = 0; c < columns.size(); ++c) {
      if (c > 0) out += ',';
      out += field_at(columns[c]);
    }
    out += '\n';
  };
  add_line([](const std::string& column) { return csv_field(column); });
  for (const auto& row : rows) {
    add_line([&](const std::string& column) {
      const auto found = row.find(column);
      return found == row.end() || found->is_structured() ? std::string() : field_of(*found);
    });
  }
  return out;
}

}  // namespace kvscope

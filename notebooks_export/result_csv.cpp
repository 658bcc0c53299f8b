#include "notebooks_export/result_csv.hpp"

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

#include "core/base/csv_text.hpp"
#include "core/base/error.hpp"

namespace kvscope {

namespace {

std::string csv_value(const nlohmann::ordered_json& value) {
  if (value.is_null()) return {};
  if (value.is_string()) return csv_field(value.get<std::string>());
  if (value.is_number_float()) return csv_number(value.get<double>());
  return csv_field(value.dump());
}

void check_stream(const std::ostream& out) {
  if (!out) throw IoError("writing CSV failed: is the disk full?");
}

}  // namespace

void write_layers_csv(const nlohmann::ordered_json& summary, std::ostream& out) {
  if (!summary.contains("layers") || !summary["layers"].is_array() || summary["layers"].empty())
    throw ConfigError("the summary holds no layers to write as CSV");
  const auto& layers = summary["layers"];
  std::string line;
  for (const auto& [key, value] : layers.front().items()) {
    if (!line.empty()) line += ',';
    line += csv_field(key);
  }
  out << line << '\n';
  for (const auto& layer : layers) {
    line.clear();
    bool first = true;
    for (const auto& [key, value] : layers.front().items()) {
      if (!first) line += ',';
      first = false;
      if (layer.contains(key)) line += csv_value(layer[key]);
    }
    out << line << '\n';
  }
  check_stream(out);
}

}  // namespace kvscope

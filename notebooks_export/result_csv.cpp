#include "notebooks_export/result_csv.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <ostream>

#include "core/base/csv_text.hpp"
#include "core/base/error.hpp"
#include "core/base/escape.hpp"

namespace kvscope {

namespace {

std::string csv_value(const nlohmann::ordered_json& value) {
  if (value.is_null()) return {};
  if (value.is_string()) return csv_field(value.get<std::string>());
  if (value.is_number_float()) return csv_number(value.get<double>());
  return csv_field(value.dump());
}

const ResultArray* find_array(const MemoryResult& result, std::string_view name) {
  const auto& arrays = result.arrays();
  const auto it = std::find_if(arrays.begin(), arrays.end(),
                               [&](const ResultArray& array) { return array.name == name; });
  return it == arrays.end() ? nullptr : &*it;
}

/// Names and, where there are any, coordinates of an array's axes.
struct ArrayAxis {
  std::string name;
  std::optional<std::span<const std::int64_t>> values;
};

std::vector<ArrayAxis> axes_of(const MemoryResult& result, const ResultArray& array) {
  std::vector<ArrayAxis> axes;
  for (std::size_t a = 0; a < array.axes.size(); ++a) {
    std::string source = array.axes[a];
    for (const ResultPlot& plot : result.plots()) {
      const bool names_one =
          plot.signal == array.name && a < plot.axes.size() && plot.axes[a] != ".";
      if (names_one) source = plot.axes[a];
    }
    const ResultArray* coordinates = find_array(result, source);
    const bool usable = coordinates && coordinates->type == ResultType::i64 &&
                        coordinates->shape == Shape{array.shape[static_cast<int>(a)]};
    if (usable) {
      axes.push_back({source, result.values<std::int64_t>(source)});
    } else {
      axes.push_back({array.axes[a], std::nullopt});
    }
  }
  return axes;
}

template <class T>
void write_elements(const ResultArray& array, const std::vector<ArrayAxis>& axes,
                    std::span<const T> values, std::ostream& out) {
  std::vector<Index> index(axes.size(), 0);
  for (const T value : values) {
    std::string line;
    for (std::size_t a = 0; a < axes.size(); ++a) {
      const auto at = static_cast<std::size_t>(index[a]);
      line += fmt::format("{},", axes[a].values ? (*axes[a].values)[at] : index[a]);
    }
    line += csv_number(value) + "\n";
    out << line;
    for (std::size_t a = axes.size(); a-- > 0;) {  // the last axis runs fastest
      if (++index[a] < array.shape[static_cast<int>(a)]) break;
      index[a] = 0;
    }
  }
}

void check_stream(const std::ostream& out) {
  if (!out) throw IoError("writing CSV failed: is the disk full?");
}

}  // namespace

void write_array_csv(const MemoryResult& result, std::string_view name, std::ostream& out) {
  const ResultArray* array = find_array(result, name);
  if (array == nullptr) {
    std::vector<std::string> names;
    for (const ResultArray& other : result.arrays()) names.push_back(other.name);
    throw ConfigError(fmt::format("the {} result holds no array \"{}\"; it has {}",
                                  result.info().kind, name, some_of(names)));
  }
  const std::vector<ArrayAxis> axes = axes_of(result, *array);
  for (const ArrayAxis& axis : axes) out << csv_field(axis.name) << ',';
  // a coordinate array would carry its axis' name twice
  const bool is_axis = axes.size() == 1 && axes[0].name == array->name;
  out << (is_axis ? "value" : csv_field(array->name)) << '\n';
  with_type(array->type,
            [&]<class T>(T) { write_elements(*array, axes, result.values<T>(name), out); });
  check_stream(out);
}

void write_layers_csv(const nlohmann::ordered_json& summary, std::ostream& out) {
  if (!summary.contains("layers") || !summary["layers"].is_array() || summary["layers"].empty()) {
    throw ConfigError("the summary holds no layers to write as CSV");
  }
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

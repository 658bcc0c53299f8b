#include "analysis/cost/hardware.hpp"

#include <fmt/format.h>

#include <cmath>

#include "core/base/embedded_file.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/suggest.hpp"
#include "core/base/whole_file.hpp"

namespace kvscope {

std::span<const EmbeddedFile> cost_data();  // data/*.json (analysis/CMakeLists.txt)

namespace {

constexpr std::string_view kHardwareFormat = "kvscope hardware 1";
constexpr std::size_t kMostProfileBytes = 1 << 20;
constexpr double kMost = 1e18;
constexpr double kLeast = 1e-15;

const std::string& source_of(const JsonObject& object) {
  const std::string& source = object.string("source");
  if (source.empty()) object.refuse("source", "where the number comes from");
  return source;
}

Sourced sourced_of(const JsonObject& parent, const std::string& field, double low, double high) {
  const JsonObject object = parent.object(field);
  return {object.number("value", low, high), source_of(object)};
}

SourcedCurve curve_of(const JsonObject& parent, const std::string& field, double most) {
  const JsonObject object = parent.object(field);
  SourcedCurve curve;
  curve.source = source_of(object);
  for (const auto& point : object.list("points")) {
    const bool is_pair =
        point.is_array() && point.size() == 2 && point[0].is_number() && point[1].is_number();
    if (!is_pair) object.refuse("points", "pairs [x, y] of numbers");
    const double x = point[0].get<double>();
    const double y = point[1].get<double>();
    const bool ascends = curve.points.empty() || x > curve.points.back().first;
    if (!(x > 0.0) || !(x < kMost) || !(y > 0.0) || !(y <= most) || !ascends)
      object.refuse("points", fmt::format("ascending x above 0 and y in (0, {:g}]", most));
    curve.points.emplace_back(x, y);
  }
  if (curve.points.empty()) object.refuse("points", "at least one pair [x, y]");
  return curve;
}

std::map<std::string, Sourced> table_of_numbers(const JsonObject& parent, const std::string& field,
                                                double low, double high) {
  const JsonObject object = parent.object(field);
  std::map<std::string, Sourced> table;
  for (const auto& [key, value] : object.value().items())
    table[key] = sourced_of(object, key, low, high);
  return table;
}

Json json_of(const Sourced& number) {
  return {{"value", number.value}, {"source", number.source}};
}

Json json_of(const SourcedCurve& curve) {
  return {{"points", curve.points}, {"source", curve.source}};
}

Json json_of(const std::map<std::string, Sourced>& table) {
  Json json = Json::object();
  for (const auto& [key, number] : table) json[key] = json_of(number);
  return json;
}

}  // namespace

double SourcedCurve::at(double x) const {
  if (x <= points.front().first) return points.front().second;
  for (std::size_t i = 1; i < points.size(); ++i) {
    const auto& [x0, y0] = points[i - 1];
    const auto& [x1, y1] = points[i];
    if (x <= x1) return y0 + (y1 - y0) * std::log(x / x0) / std::log(x1 / x0);
  }
  return points.back().second;
}

HardwareProfile parse_hardware(std::string_view text, const std::string& where) {
  const nlohmann::json json = parse_json(text, where);
  const JsonObject top(json, where);
  if (top.string("format") != kHardwareFormat)
    top.refuse("format", fmt::format("\"{}\"", kHardwareFormat));
  HardwareProfile profile;
  profile.name = top.string("name");
  profile.title = top.string("title");
  profile.kind = top.string("kind");
  if (profile.kind != "gpu" && profile.kind != "cpu") top.refuse("kind", "gpu or cpu");
  profile.compute = top.string("compute");
  profile.peak = table_of_numbers(top, "peak", 1e3, kMost);
  if (!profile.peak.contains(profile.compute)) top.refuse("compute", "a format that peak has");
  profile.bandwidth = curve_of(top, "bandwidth", kMost);
  profile.memory = sourced_of(top, "memory", 1.0, kMost);
  profile.launch = sourced_of(top, "launch", 0.0, 1.0);
  profile.attend = sourced_of(top, "attend", kLeast, 1.0);
  profile.attend_rows = curve_of(top, "attend_rows", 1.0);
  profile.score = sourced_of(top, "score", kLeast, 1.0);
  profile.matmul = sourced_of(top, "matmul", kLeast, 1.0);
  profile.gather = curve_of(top, "gather", 1.0);
  profile.topk = sourced_of(top, "topk", 0.0, 1.0);
  if (top.find("kernels") != nullptr)
    profile.kernels = table_of_numbers(top, "kernels", kLeast, 1.0);
  return profile;
}

Json hardware_json(const HardwareProfile& profile) {
  Json json = {{"format", std::string(kHardwareFormat)},
               {"name", profile.name},
               {"title", profile.title},
               {"kind", profile.kind},
               {"compute", profile.compute},
               {"peak", json_of(profile.peak)},
               {"bandwidth", json_of(profile.bandwidth)},
               {"memory", json_of(profile.memory)},
               {"launch", json_of(profile.launch)},
               {"attend", json_of(profile.attend)},
               {"attend_rows", json_of(profile.attend_rows)},
               {"score", json_of(profile.score)},
               {"matmul", json_of(profile.matmul)},
               {"gather", json_of(profile.gather)},
               {"topk", json_of(profile.topk)}};
  if (!profile.kernels.empty()) json["kernels"] = json_of(profile.kernels);
  return json;
}

std::vector<std::string> hardware_names() {
  std::vector<std::string> names;
  for (const EmbeddedFile& data : cost_data()) names.emplace_back(data.name);
  return names;
}

HardwareProfile find_hardware(const std::string& name_or_path) {
  if (name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".json"))
    return parse_hardware(read_whole_file(name_or_path, kMostProfileBytes), name_or_path);
  for (const EmbeddedFile& data : cost_data()) {
    if (data.name == name_or_path)
      return parse_hardware(data.text, fmt::format("the built-in profile {}", data.name));
  }
  const std::vector<std::string> names = hardware_names();
  throw ConfigError(
      "there is no hardware profile \"{}\"; built in are {}, and a word with a slash "
      "or .json names a file{}",
      name_or_path, fmt::join(names, ", "), did_you_mean(name_or_path, names));
}

}  // namespace kvscope

#include "analysis/base/number_formats.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace kvscope {

namespace {

/// "cuda-f32" is f32 on another device; what is not known is said of nothing.
bool is_f32(const std::string& name) {
  return name.empty() || name.ends_with("f32");
}

}  // namespace

const std::array<NumberFormats::Field, NumberFormats::kFields>& NumberFormats::fields() {
  static constexpr std::array<Field, kFields> kAll = {{{"matmul", &NumberFormats::matmul},
                                                       {"kv_dtype", &NumberFormats::kv_dtype},
                                                       {"recorded", &NumberFormats::recorded}}};
  return kAll;
}

NumberFormats NumberFormats::of(const nlohmann::ordered_json& config) {
  NumberFormats formats;
  const auto read = [&](const nlohmann::ordered_json& from) {
    if (!from.is_object()) return;
    for (const Field& field : fields()) {
      std::string& to = formats.*field.text;
      if (is_f32(to) && from.contains(field.name) && from.at(field.name).is_string())
        to = from.at(field.name).get<std::string>();
    }
    const auto moved = from.find("moved_scores");
    if (moved != from.end() && moved->is_number())
      formats.moved_scores = std::max(formats.moved_scores, moved->get<double>());
  };
  if (!config.is_object()) return formats;
  read(config);
  for (const char* key : {"traces", "draft_traces", "trace", "calibration_trace"}) {
    if (!config.contains(key)) continue;
    const nlohmann::ordered_json& traces = config.at(key);
    read(traces);
    if (traces.is_array()) std::ranges::for_each(traces, read);
  }
  return formats;
}

NumberFormats NumberFormats::of(const TraceInfo& info) {
  const bool is_stored = info.capture.qkv || info.capture.attn_dense;
  NumberFormats formats{info.matmul, info.kv_dtype,
                        std::string(enum_name(is_stored ? info.dtype : DType::f32))};
  for (const float moved : info.moved_scores)
    formats.moved_scores = std::fmax(formats.moved_scores, static_cast<double>(moved));
  return formats;
}

bool NumberFormats::are_f32() const {
  return std::ranges::all_of(fields(),
                             [&](const Field& field) { return is_f32(this->*field.text); });
}

void NumberFormats::add_to(nlohmann::ordered_json& config) const {
  for (const Field& field : fields()) {
    if (!is_f32(this->*field.text)) config[field.name] = this->*field.text;
  }
  if (moved_scores > 0.0) config["moved_scores"] = moved_scores;
}

std::string NumberFormats::sentence() const {
  std::vector<std::string> parts;
  if (!is_f32(matmul)) parts.push_back("products in " + matmul);
  if (!is_f32(kv_dtype)) parts.push_back("keys and values in " + kv_dtype);
  const bool is_computed = !parts.empty();
  if (!is_f32(recorded)) parts.push_back("recorded in " + recorded);
  if (moved_scores > 0.0)
    parts.back() += fmt::format(", which moved scores by at most {:.2g} nats", moved_scores);
  if (parts.empty()) return "";
  std::string text = fmt::format("{}", fmt::join(parts, ", "));
  if (is_computed) return "Computed with " + text + ": choices and numbers are not those of f32.";
  text.front() = 'R';
  return text + ": choices and numbers are not those of f32.";
}

void add_formats(std::span<const NumberFormats> of_rows, Table& table) {
  for (const NumberFormats::Field& field : NumberFormats::fields()) {
    const auto is_plain = [&](const NumberFormats& row) { return is_f32(row.*field.text); };
    if (std::ranges::all_of(of_rows, is_plain)) continue;
    TextColumnBuilder words;
    for (const NumberFormats& row : of_rows) words.add(is_plain(row) ? "f32" : row.*field.text);
    table.add_text(field.name, words.take());
  }
}

}  // namespace kvscope

#include "analysis/number_formats.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace kvscope {

namespace {

/// "cuda-f32" is f32 on another device.
bool is_f32(const std::string& name) {
  return name.empty() || name.ends_with("f32");
}

}  // namespace

NumberFormats NumberFormats::of(const nlohmann::ordered_json& config) {
  NumberFormats formats;
  const auto read = [&](const char* key, std::string& to) {
    if (config.is_object() && config.contains(key) && config.at(key).is_string())
      to = config.at(key).get<std::string>();
  };
  read("matmul", formats.matmul);
  read("kv_dtype", formats.kv_dtype);
  return formats;
}

bool NumberFormats::are_f32() const {
  return is_f32(matmul) && is_f32(kv_dtype);
}

std::string NumberFormats::sentence() const {
  if (are_f32()) return "";
  return fmt::format("Computed with {}{}{}: choices and numbers are not those of f32.",
                     is_f32(matmul) ? std::string() : "products in " + matmul,
                     is_f32(matmul) || is_f32(kv_dtype) ? "" : ", ",
                     is_f32(kv_dtype) ? std::string() : "keys and values in " + kv_dtype);
}

void NumberFormats::add_to(ColumnTable& table) const {
  if (are_f32()) return;
  table.text_names.insert(table.text_names.end(), {"matmul", "kv_dtype"});
  for (ColumnTable::Row& row : table.rows) row.texts.insert(row.texts.end(), {matmul, kv_dtype});
}

}  // namespace kvscope

// What of a run was not computed in f32: rounded products and stored keys change which keys a
// method chooses, so that its tables, rows and figures say so.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "analysis/column_table.hpp"

namespace kvscope {

/// As options and results name them: "f32", "bf16-amx", "cuda-f32", ...
struct NumberFormats {
  std::string matmul = "f32";    // products of linear layers
  std::string kv_dtype = "f32";  // stored keys and values

  /// Of a result's configuration or a report, where an absent key is f32.
  static NumberFormats of(const nlohmann::ordered_json& config);
  bool are_f32() const;
  /// "Computed with products in bf16-amx, keys and values in bf16: choices and numbers are not
  /// those of f32."; empty if everything is f32.
  std::string sentence() const;
  /// The sentence as a line of a printed report.
  std::string line() const { return are_f32() ? "" : sentence() + "\n"; }
  /// Columns matmul and kv_dtype, where something is not f32.
  void add_to(ColumnTable& table) const;
};

}  // namespace kvscope

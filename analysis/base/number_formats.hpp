// What of a run or a recording is not in f32: rounded products, keys and stored rows change which
// keys a method chooses, so that tables, rows and figures of their numbers say so.
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "analysis/base/table.hpp"
#include "core/trace/info.hpp"

namespace kvscope {

/// As options and results name them: "f32", "bf16-amx", "cuda-f32", ...
struct NumberFormats {
  std::string matmul = "f32";    // products of linear layers
  std::string kv_dtype = "f32";  // stored keys and values
  std::string recorded = "f32";  // q, k and v in the file of a recording
  double moved_scores = 0.0;     // by how much that moved scores, nat; 0: f32, or not measured

  /// Names of keys and of columns, in the order of the fields.
  struct Field {
    const char* name;
    std::string NumberFormats::*text;
  };
  static constexpr std::size_t kFields = 3;
  static const std::array<Field, kFields>& fields();

  /// Of a result's configuration or a report, where an absent key is f32. What is not said of the
  /// run is said of its recordings: the first of "traces" and the others that was not f32 counts.
  static NumberFormats of(const nlohmann::ordered_json& config);
  /// Of a recording, and of the run that made it.
  static NumberFormats of(const TraceInfo& info);
  bool are_f32() const;
  /// Keys of a configuration: what is not f32.
  void add_to(nlohmann::ordered_json& config) const;
  /// "Products in bf16-amx, keys and values in bf16: ..."; empty if everything is f32.
  std::string sentence() const;
  /// The sentence as a line of a printed report.
  std::string line() const { return are_f32() ? "" : sentence() + "\n"; }
};

/// Columns of what is not f32 in some row; `of_rows` [rows] says it of each.
void add_formats(std::span<const NumberFormats> of_rows, Table& table);

}  // namespace kvscope

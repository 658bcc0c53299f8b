// Checks a trace file against itself: structure, checksums, and attention and statistics recomputed
// from the recorded q, k, v.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/parallel.hpp"
#include "core/base/progress.hpp"
#include "core/tensor/tensor.hpp"
#include "core/trace/info.hpp"
#include "traces/verify_sample.hpp"

namespace kvscope {

struct VerifyOptions {
  /// Rows per layer and query head that are recomputed; all if the trace has fewer.
  Index n_rows = 64;
  std::uint64_t seed = 0;  // picks the rows, and what is looked at where not all is
  VerifyBounds bounds;     // how much is looked at
};

struct VerifyReport {
  bool ok = true;
  std::vector<std::string> problems;  // sentences; at most 20 of a kind are spelled out
  std::vector<std::string> notes;     // oddities that are no error
  TraceStatus status = TraceStatus::complete;
  Index n_checksums = 0;  // compared
  Index n_all_checksums = 0;
  Index n_rows_checked = 0;
  /// Layers' KV heads of which rows were recomputed, and statistics where the trace has them.
  Index n_heads_checked = 0;
  Index n_all_heads = 0;
  // Largest differences between recorded and recomputed numbers, and what was allowed.
  double max_lse_error = 0;
  std::vector<double> lse_errors;  // the same by recorded layer; empty if nothing was recomputed
  double max_attn_error = 0;
  /// Of dense attention rows, from 1 (from less where a sink has a share).
  double max_row_sum_error = 0;
  double max_output_norm = 0;  // of the recomputed softmax(QK^T)V; finite in a sound trace
};

/// Never throws for a damaged file: what is wrong is in the report. Throws IoError if the file
/// cannot be read at all.
VerifyReport verify_trace(const std::filesystem::path& path, const VerifyOptions& options,
                          ThreadPool& pool, const ProgressFn& progress = {});

}  // namespace kvscope

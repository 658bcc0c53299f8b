// Recomputes softmax(scale Q K^T) V of sampled rows in double precision and compares it with what a
// trace recorded.
#pragma once

#include <string>
#include <vector>

#include "traces/reader.hpp"
#include "traces/verify_lse.hpp"

namespace kvscope {

/// What comparing one layer's query head gave.
struct RowCheck {
  Index n_rows = 0;
  double lse_error = 0;
  double attn_error = 0;
  double row_sum_error = 0;
  double output_norm = 0;
  std::vector<LseRow> lse_rows;
  std::vector<std::string> problems;
};

/// How far recorded and recomputed numbers may lie apart.
struct RowTolerance {
  double lse = 0;   // nat
  double attn = 0;  // probability
};

/// Half the distance between neighbouring numbers at 1: the relative error of rounding to the type.
double unit_roundoff(DType dtype);

/// Rounding of q and k to the storage type moves a score by up to eps * scale * |q| |k| each; the
/// model's f32 sums add some 1e-5. Both are widened per row by that bound.
RowTolerance base_tolerance(DType dtype);

/// What the rows of all query heads of a KV head read.
struct CheckedHead {
  CheckedHead(Tensor<float> k, Tensor<float> v, DType dtype);
  Tensor<float> keys, values;     // [n_tokens, d_head]
  std::vector<double> key_norms;  // squared
  Tensor<float> key_roundings;    // rounding_variances of the keys; empty in f32
};

/// Checks rows `positions` of one query head of that KV head.
RowCheck check_rows(const TraceFile& trace, Index layer, Index q_head,
                    const std::vector<Index>& positions, const CheckedHead& head);

}  // namespace kvscope

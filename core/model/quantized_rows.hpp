// Linear layers' weights that checkpoints of the hub store quantised: FP8, GPTQ and AWQ.
//
// FP8: `name`.weight in F8_E4M3 [n_rows, n_cols] times a scale: `name`.weight_scale_inv or
// `name`.weight_scale, one for all, one per row, or one per block (quantization_config's
// weight_block_size, as in DeepSeek's and Qwen3's files).
//
// GPTQ (arXiv 2210.17323) of 4 bits: eight inputs in each word of `name`.qweight
// [n_cols / 8, n_rows]; weight = scales[g, row] * (q - zero[g, row]), where g is the group of the
// input: g_idx[input] (desc_act), or the input's number / group_size. Zeros are packed by eight
// rows in qzeros [n_groups, n_rows / 8]; version 1 of the format stores them less 1.
//
// AWQ (arXiv 2306.00978) of 4 bits: the same, eight rows in each word of qweight
// [n_cols, n_rows / 8] and qzeros, in the order 0, 2, 4, 6, 1, 3, 5, 7 from the lowest bits.
#pragma once

#include <string>

#include "core/model/config.hpp"
#include "core/model/matrix_rows.hpp"

namespace kvscope {

/// Rows [part.begin, ...) of the linear layer `name` (without ".weight"), whose weight is
/// [part.n_stored, n_cols]: quantised as `quantization` says if the file has it so, else as
/// stored_rows. Throws FormatError for tensors that are missing or do not fit together.
MatrixRowsPtr linear_rows(const WeightFiles& files, const QuantizationConfig& quantization,
                          const std::string& name, StoredRows part, Index n_cols);

}  // namespace kvscope

// Linear layers' weights that checkpoints of the hub store in FP8.
//
// FP8: `name`.weight in F8_E4M3 [n_rows, n_cols] times a scale: `name`.weight_scale_inv or
// `name`.weight_scale, one for all, one per row, or one per block (quantization_config's
// weight_block_size, as in DeepSeek's and Qwen3's files).
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

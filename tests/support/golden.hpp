// Reads the reference fixtures with plain HDF5 calls, independent of kvscope's own reader.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/tensor/tensor.hpp"

namespace kvscope::test {

/// tests/golden of the source tree.
std::filesystem::path golden_dir();

/// One dataset of a golden.h5, widened to float, with its shape.
Tensor<float> read_golden(const std::filesystem::path& h5_file, const std::string& dataset);

/// /tokens of a golden.h5.
std::vector<TokenId> read_golden_tokens(const std::filesystem::path& h5_file);

/// Largest absolute difference; the shapes must be equal.
double max_abs_difference(TensorView<const float> a, TensorView<const float> b);

}  // namespace kvscope::test

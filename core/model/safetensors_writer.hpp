// Writes a safetensors file: the header that core/model/safetensors.hpp describes, then the data.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/index.hpp"

namespace kvscope {

/// One tensor to write. `write` hands all of its bytes on, in as many pieces as it likes; it is
/// called when the tensor's turn comes, so that no two need lie in memory.
struct TensorToWrite {
  std::string name;
  std::string dtype_name;  // "F32", "BF16", ...
  std::vector<Index> shape;
  std::size_t n_bytes = 0;
  std::function<void(const std::function<void(std::string_view)>& put)> write;
};

/// Throws IoError, and what the tensors' functions throw; the file appears whole or not at all.
void write_safetensors(const std::filesystem::path& file, const std::vector<TensorToWrite>& tensors,
                       bool overwrite);

}  // namespace kvscope

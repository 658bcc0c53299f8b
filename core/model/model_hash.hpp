// Which model numbers were made with: a fingerprint of a checkpoint's contents. A folder's name is
// none, since retrained weights are saved under the name of the old ones.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/model/weights.hpp"

namespace kvscope {

/// "xxh128:" and 32 hexadecimal digits, over the bytes of config.json, those of tokenizer.json
/// (empty: there is none; of a GGUF file what it has in their place), and of every tensor its name,
/// dtype, shape and the XXH3 of its first and last 64 KiB. No path and no time, and not how tensors
/// are divided into files: a copy on another machine has the same hash. Weights that differ only
/// inside a tensor of more than 128 KiB, and in no tensor's ends, are taken for the same; training
/// changes all of them.
std::string model_hash(std::string_view config_json, std::string_view tokenizer_json,
                       const WeightFiles& weights);

/// The same of a checkpoint folder or GGUF file whose weights are open already, or are opened for
/// this. Throws IoError or FormatError.
std::string model_hash(const std::filesystem::path& model_dir, const WeightFiles& weights);
std::string model_hash(const std::filesystem::path& model_dir);

}  // namespace kvscope

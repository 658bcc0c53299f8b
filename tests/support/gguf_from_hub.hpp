// A small checkpoint of the hub as the GGUF file that converters make of it: their names, their
// order of rows, their metadata. Written from the format's side, with loops, for tests.
#pragma once

#include <filesystem>

#include "tests/support/gguf_builder.hpp"

namespace kvscope::testing {

/// Tensors and metadata of the model in `folder`, without a tokenizer. Weights become F32; experts
/// packed in MXFP4 stay so.
GgufBuilder gguf_from_hub(const std::filesystem::path& folder);

}  // namespace kvscope::testing

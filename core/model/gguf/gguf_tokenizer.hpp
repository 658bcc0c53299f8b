// The tokenizer that a GGUF file's own tables describe.
#pragma once

#include "core/model/gguf/gguf_file.hpp"
#include "core/model/tokenizer_json.hpp"

namespace kvscope {

/// Reads tokenizer.ggml.*: model "gpt2" (byte-level BPE, cut into pieces as tokenizer.ggml.pre
/// names it) or "llama" (SentencePiece; merges that the file does not list follow from its
/// vocabulary). Control and user-defined tokens become added tokens; BOS and EOS go around a text
/// as the file's flags say. Throws FormatError, or ConfigError for kinds that are not implemented.
TokenizerParts gguf_tokenizer(const GgufMetadata& metadata);

}  // namespace kvscope

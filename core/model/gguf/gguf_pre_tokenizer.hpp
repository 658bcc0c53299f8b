// How texts are cut into pieces, by the names that GGUF files give it (tokenizer.ggml.pre).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <vector>

namespace kvscope {

/// One way, as the tokenizer.json of the models that have it says it.
struct GgufPreTokenizer {
  bool is_composed = false;     // the text is brought into NFC
  std::string_view pattern;     // of Split; empty: ByteLevel's own expression
  bool splits_digits = false;   // each digit is a piece
  bool ignores_merges = false;  // a piece that is a token needs no merges
  bool adds_bos = false;        // where the file does not say it

  /// The pre-tokenizer in the words of tokenizer.json.
  nlohmann::json steps(bool adds_prefix_space) const;
};

/// Null if there is none of that name.
const GgufPreTokenizer* gguf_pre_tokenizer(std::string_view name);

std::vector<std::string_view> gguf_pre_tokenizer_names();

}  // namespace kvscope

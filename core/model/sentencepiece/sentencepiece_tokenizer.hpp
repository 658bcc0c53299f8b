// The tokenizer that a tokenizer.model file of SentencePiece holds.
#pragma once

#include <string>
#include <string_view>

#include "core/model/tokenizer_json.hpp"

namespace kvscope {

/// The parts of that tokenizer: unigram, or BPE in the order of scores. Control symbols and what
/// the files beside it add are recognised in texts, as transformers does; everything else gives
/// SentencePiece's ids. The begin of sequence goes in front unless the settings say otherwise.
/// Throws FormatError or ConfigError; `where` and `settings_where` name the files.
TokenizerParts sentencepiece_tokenizer(std::string_view bytes, const std::string& where,
                                       const TokenizerCompanions& beside,
                                       const std::string& settings_where);

}  // namespace kvscope

// tekken.json: the tokenizer of Mistral's own files.
#pragma once

#include <string>
#include <string_view>

#include "core/model/tokenizer_json.hpp"

namespace kvscope {

/// The parts of that tokenizer: special tokens first, then tokens of bytes by rank, of which the
/// pair of the lowest rank is joined first. Throws FormatError or ConfigError; `where` names the
/// file in messages.
TokenizerParts tekken_tokenizer(std::string_view json_text, const std::string& where);

}  // namespace kvscope

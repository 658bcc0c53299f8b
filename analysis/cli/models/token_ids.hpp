// Token ids as users hand them in: JSON or plain numbers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/model/tokenizer.hpp"

namespace kvscope::cli {

/// Token ids as a JSON array, as an object with "ids", or as numbers separated by blanks, commas
/// and line breaks. `where` names the source in messages. Throws FormatError at the first thing
/// that is not an id.
std::vector<TokenId> parse_token_ids(std::string_view text, const std::string& where);

}  // namespace kvscope::cli

// The tokens of a Jinja template, with the white space that its tags strip already gone:
// trim_blocks and lstrip_blocks are on, as the hub's chat templates expect.
#pragma once

#include "core/base/vocabulary.hpp"

namespace kvscope::jinja {

enum class TokenKind {
  text,            // what stands between tags
  block_begin,     // {%
  block_end,       // %}
  variable_begin,  // {{
  variable_end,    // }}
  name,
  string,   // without quotes, escapes resolved
  integer,  // digits
  real,
  sign,  // an operator or bracket
  end,
};

struct Token {
  TokenKind kind = TokenKind::end;
  std::string text;
  int line = 1;
};

/// The last token is `end`. Throws FormatError with the line for a tag, comment or string that does
/// not end, brackets that do not match and characters that begin nothing.
std::vector<Token> tokens_of(std::string_view source);

}  // namespace kvscope::jinja

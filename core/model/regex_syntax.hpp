// Regular expressions in the dialect of tokenizer.json (Oniguruma), rewritten for PCRE2.
//
// The two agree on most of what pre-tokenizers use, and differ silently on the rest: what \s, \w
// and \h mean, scripts, x{1,3}+ (a repeated repeat there, possessive here), {,3}, (?m), sets in
// sets, properties where case is ignored (on which PCRE2 before and since 10.45 differ too).
// Everything on which they agree is passed on, what can be rewritten is rewritten, and the rest is
// refused.
#pragma once

#include <string>
#include <string_view>

namespace kvscope {

/// The PCRE2 pattern (to be compiled with UTF, UCP and MULTILINE) that matches what `pattern`
/// matches in Oniguruma. Groups lose their numbers: back references are refused. Not covered: case
/// folding of one character to several ((?i:ss) does not match a sharp s). `where` names the
/// pattern's place in messages. Throws ConfigError.
std::string pcre2_from_oniguruma(std::string_view pattern, const std::string& where);

}  // namespace kvscope

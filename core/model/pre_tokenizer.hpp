// The pre-tokenizer of tokenizer.json: cuts text into the pieces inside which BPE merges.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/model/regex.hpp"

namespace kvscope {

/// What becomes of the stretches that match a Split's pattern; names as in tokenizer.json.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// Cuts each piece where the pattern matches.
struct SplitStep {
  std::variant<std::string, Regex> pattern;  // a plain, non-empty string or an expression
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;  // matches and the rest between them change places
};

/// Puts a space in front of each piece that does not begin with one (ByteLevel's add_prefix_space).
struct PrefixSpaceStep {};

using PreTokenizerStep = std::variant<SplitStep, PrefixSpaceStep>;

/// The expression of ByteLevel's use_regex: GPT-2's.
std::string_view gpt2_pattern();

/// Runs the steps on one text after another; one thread. The steps must outlive it.
class PreTokenizer {
 public:
  /// `n_bytes`: length of all text that will be cut (see RegexMatcher).
  PreTokenizer(const std::vector<PreTokenizerStep>& steps, std::size_t n_bytes);

  /// The non-empty pieces of `text` (well-formed UTF-8) in order. They refer to `text` or to memory
  /// of this object, and stay valid as long as both. Throws ConfigError (see RegexMatcher).
  const std::vector<std::string_view>& split(std::string_view text);

 private:
  struct Stretch {
    ByteRange range;
    bool is_match;
  };

  void apply(const SplitStep& step, RegexMatcher* matcher, std::string_view piece);
  void find_matches(const SplitStep& step, RegexMatcher* matcher, std::string_view piece);

  const std::vector<PreTokenizerStep>& steps_;
  std::vector<RegexMatcher> matchers_;    // one per Split with an expression, in order
  std::deque<std::string> owned_;         // pieces that are not part of the text
  std::vector<Stretch> stretches_;        // scratch
  std::vector<std::string_view> pieces_;  // the result so far
  std::vector<std::string_view> next_;    // scratch: what the current step makes of pieces_
};

}  // namespace kvscope

// The pre-tokenizer of tokenizer.json: cuts text into the pieces inside which BPE merges.
#pragma once

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

/// Spaces become `replacement`, one goes in front as the scheme says, and a split begins a new
/// piece at each (SentencePiece's words).
struct MetaspaceStep {
  enum class Prepend { always, first, never };  // first: only where the whole text begins
  std::string replacement;
  Prepend prepend = Prepend::always;
  bool splits = true;
};

using PreTokenizerStep = std::variant<SplitStep, PrefixSpaceStep, MetaspaceStep>;

/// The expression of ByteLevel's use_regex: GPT-2's.
std::string_view gpt2_pattern();

/// Runs the steps on one text after another; one thread. The steps must outlive it.
class PreTokenizer {
 public:
  /// `n_bytes`: length of all text that will be cut (see RegexMatcher).
  PreTokenizer(const std::vector<PreTokenizerStep>& steps, std::size_t n_bytes);

  /// The non-empty pieces of `text` (well-formed UTF-8) in order. They refer to `text` or to memory
  /// of this object, and stay valid as long as both. begins_text: nothing stands before it. Throws
  /// ConfigError (see RegexMatcher).
  const std::vector<std::string_view>& split(std::string_view text, bool begins_text);

 private:
  struct Stretch {
    ByteRange range;
    bool is_match;
  };

  void apply(const SplitStep& step, RegexMatcher* matcher, std::string_view piece);
  void apply(const PrefixSpaceStep& step, std::string_view piece);
  void apply(const MetaspaceStep& step, std::string_view piece, bool begins_text);
  void find_matches(const SplitStep& step, RegexMatcher* matcher, std::string_view piece);

  const std::vector<PreTokenizerStep>& steps_;
  std::vector<RegexMatcher> matchers_;    // one per Split with an expression, in order
  std::deque<std::string> owned_;         // pieces that are not part of the text
  std::vector<Stretch> stretches_;        // scratch
  std::vector<std::string_view> pieces_;  // the result so far
  std::vector<std::string_view> next_;    // scratch: what the current step makes of pieces_
};

}  // namespace kvscope

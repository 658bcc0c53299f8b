// Regular expressions of tokenizer.json over UTF-8 text, with a bound on the work that they may
// cost.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace kvscope {

/// A compiled expression. Immutable; copies share it; safe to use from several threads at once.
class Regex {
 public:
  /// `pattern` in the dialect of Oniguruma, which compiles it as for the tokenizers library.
  /// `where` names its place in messages. Throws ConfigError if it is malformed or too large.
  Regex(std::string_view pattern, const std::string& where);

 private:
  friend class RegexMatcher;
  struct Code;
  std::shared_ptr<const Code> code_;
};

/// A stretch of bytes.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// One thread's matching with one expression: scratch memory and the account of the time spent. The
/// pattern comes from a file, so a hostile one must end in an error instead of running for hours:
/// processor time is limited to a hundred times what the expressions of real tokenizers need. Used
/// by one thread.
class RegexMatcher {
 public:
  /// `n_bytes`: length of all text that will be matched; the time allowed grows with it.
  RegexMatcher(const Regex& regex, std::size_t n_bytes);
  ~RegexMatcher();
  RegexMatcher(RegexMatcher&&) noexcept;

  /// The match that begins exactly at `pos` <= text.size(), if there is one. `text` is well-formed
  /// UTF-8 and `pos` the beginning of a character. Throws FormatError if the expression costs too
  /// much.
  std::optional<ByteRange> match_at(std::string_view text, std::size_t pos);

  /// The first match that begins at `pos` or later.
  std::optional<ByteRange> find(std::string_view text, std::size_t pos);

 private:
  struct Scratch;
  [[noreturn]] void give_up(const std::string& why) const;

  std::shared_ptr<const Regex::Code> code_;
  std::unique_ptr<Scratch> scratch_;
  double deadline_;         // processor time of this thread, seconds
  double next_look_ = 0.0;  // at it, in seconds of a clock that costs less
};

}  // namespace kvscope

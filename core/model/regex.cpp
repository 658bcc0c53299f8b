#include "core/model/regex.hpp"

#include <oniguruma.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <new>
#include <string>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/utf8.hpp"

namespace kvscope {

namespace {

constexpr std::size_t kMaxPattern = 32768;  // bytes
constexpr double kClockSeconds = 0.05;      // between two looks at the processor time
constexpr double kSeconds = 2.0;            // processor time allowed for any text
constexpr double kSecondsPerByte = 5e-6;    // and what each byte of text adds
// Steps back that one match may take, for any text and for each byte of it: every step may run over
// all of the text, which no clock sees.
constexpr unsigned long kRetries = 10'000;
constexpr unsigned long kRetriesPerByte = 6;
constexpr unsigned long kMostRetries = 10'000'000;  // as the tokenizers library has it
constexpr unsigned kMostStack = 1U << 23U;          // entries that one match may push

const OnigUChar* bytes_of(std::string_view text) {
  return reinterpret_cast<const OnigUChar*>(text.data());
}

std::string message_of(int code, OnigErrorInfo* info = nullptr) {
  std::array<OnigUChar, ONIG_MAX_ERROR_MESSAGE_LEN> text{};
  const int size = onig_error_code_to_str(text.data(), code, info);
  return {reinterpret_cast<const char*>(text.data()), static_cast<std::size_t>(size)};
}

double seconds_of(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// What this library does otherwise than the one of tokenizers, or without a bound; empty if
/// nothing is. Oniguruma before 6.9.9 leaves symbols out of [:punct:], and matches one line end
/// where \R is repeated; \G, (?L) and (*NAME) ask for a search from the left, which find() does not
/// do; a group that calls itself takes exponential time without a step back.
std::string_view unlike_the_library(std::string_view pattern) {
  int n_classes = 0;  // character classes around `at`
  for (std::size_t at = 0; at < pattern.size(); ++at) {
    const std::string_view rest = pattern.substr(at);
    for (const std::string_view name : {"[:punct:]", "[:^punct:]", "\\R", "\\G", "\\g"}) {
      if (rest.starts_with(name)) return name;
    }
    if (n_classes == 0 && (rest.starts_with("(*") || rest.starts_with("(?{")))
      return rest.substr(0, 3);
    if (n_classes == 0 && rest.starts_with("(?")) {
      const std::size_t options_end = rest.find_first_not_of("imxWDSPyL-", 2);
      const std::string_view options = rest.substr(0, options_end);
      if (options.find('L') != options.npos) return options;
    }
    if (rest[0] == '\\') ++at;  // with its sign
    n_classes += rest[0] == '[' ? 1 : rest[0] == ']' && n_classes > 0 ? -1 : 0;
  }
  return {};
}

void initialize_once() {
  static const int code = [] {
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    return onig_initialize(encodings, 1);
  }();
  if (code != ONIG_NORMAL) throw std::bad_alloc();
}

void free_region(OnigRegion* region) {
  onig_region_free(region, /*free_self=*/1);
}

template <auto free_function>
struct Free {
  template <class T>
  void operator()(T* p) const {
    free_function(p);
  }
};

}  // namespace

struct Regex::Code {
  std::unique_ptr<OnigRegexType, Free<onig_free>> compiled;
  std::string where;
};

struct RegexMatcher::Scratch {
  std::unique_ptr<OnigRegion, Free<free_region>> region{onig_region_new()};
  std::unique_ptr<OnigMatchParam, Free<onig_free_match_param>> limits{onig_new_match_param()};
};

Regex::Regex(std::string_view pattern, const std::string& where) {
  if (pattern.size() > kMaxPattern) {
    throw ConfigError("{}: expected a regular expression of at most {} bytes, found {}", where,
                      kMaxPattern, pattern.size());
  }
  if (const std::string_view name = unlike_the_library(pattern); !name.empty())
    throw ConfigError("{}: the regular expression {} has {}: not supported", where,
                      quote(pattern, 200), name);
  initialize_once();
  OnigRegex compiled = nullptr;
  OnigErrorInfo info{};
  const int code = onig_new(&compiled, bytes_of(pattern), bytes_of(pattern) + pattern.size(),
                            ONIG_OPTION_NONE, ONIG_ENCODING_UTF8, ONIG_SYNTAX_ONIGURUMA, &info);
  if (code != ONIG_NORMAL) {
    throw ConfigError("{}: the regular expression {} is not valid: {}", where, quote(pattern, 200),
                      message_of(code, &info));
  }
  auto made = std::make_shared<Code>();
  made->compiled.reset(compiled);
  made->where = where;
  code_ = std::move(made);
}

RegexMatcher::RegexMatcher(const Regex& regex, std::size_t n_bytes)
    : code_(regex.code_),
      scratch_(std::make_unique<Scratch>()),
      deadline_(seconds_of(CLOCK_THREAD_CPUTIME_ID) + kSeconds +
                kSecondsPerByte * static_cast<double>(n_bytes)) {
  if (!scratch_->region || !scratch_->limits) throw std::bad_alloc();
  onig_initialize_match_param(scratch_->limits.get());
  onig_set_retry_limit_in_match_of_match_param(
      scratch_->limits.get(), std::min(kMostRetries, kRetries + kRetriesPerByte * n_bytes));
  onig_set_match_stack_limit_size_of_match_param(scratch_->limits.get(), kMostStack);
}

RegexMatcher::~RegexMatcher() = default;
RegexMatcher::RegexMatcher(RegexMatcher&&) noexcept = default;

void RegexMatcher::give_up(const std::string& why) const {
  throw FormatError("{}: the regular expression costs too much on this text: {}", code_->where,
                    why);
}

std::optional<ByteRange> RegexMatcher::match_at(std::string_view text, std::size_t pos) {
  // A step back is counted, the characters that a repeat runs over are not: hence the clock.
  // Processor time of this thread: a busy machine or a debugger must not turn sound text into an
  // error. It takes a system call, the coarse clock does not.
  if (const double now = seconds_of(CLOCK_MONOTONIC_COARSE); now > next_look_) {
    next_look_ = now + kClockSeconds;
    if (seconds_of(CLOCK_THREAD_CPUTIME_ID) > deadline_) give_up("it backtracks without end");
  }
  const int found = onig_match_with_param(
      code_->compiled.get(), bytes_of(text), bytes_of(text) + text.size(), bytes_of(text) + pos,
      scratch_->region.get(), ONIG_OPTION_NONE, scratch_->limits.get());
  if (found == ONIG_MISMATCH) return std::nullopt;
  if (found < 0) give_up(message_of(found));
  return ByteRange{static_cast<std::size_t>(scratch_->region->beg[0]),
                   static_cast<std::size_t>(scratch_->region->end[0])};
}

std::optional<ByteRange> RegexMatcher::find(std::string_view text, std::size_t pos) {
  while (true) {
    if (const auto match = match_at(text, pos)) return match;
    if (pos >= text.size()) return std::nullopt;
    pos += utf8_char_at(text, pos).size;
  }
}

}  // namespace kvscope

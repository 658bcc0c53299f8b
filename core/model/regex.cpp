#include "core/model/regex.hpp"

#include <oniguruma.h>
#include <time.h>

#include <array>
#include <new>
#include <string>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/utf8.hpp"

namespace kvscope {

namespace {

constexpr std::size_t kMaxPattern = 32768;  // bytes
constexpr std::uint32_t kCallsPerClock = 4;
constexpr double kSeconds = 2.0;          // processor time allowed for any text
constexpr double kSecondsPerByte = 5e-6;  // and what each byte of text adds
constexpr unsigned long kMostRetries =
    10'000'000;                             // of one match, as the tokenizers library has it
constexpr unsigned kMostStack = 1U << 23U;  // entries that one match may push

const OnigUChar* bytes_of(std::string_view text) {
  return reinterpret_cast<const OnigUChar*>(text.data());
}

std::string message_of(int code, OnigErrorInfo* info = nullptr) {
  std::array<OnigUChar, ONIG_MAX_ERROR_MESSAGE_LEN> text{};
  const int size = onig_error_code_to_str(text.data(), code, info);
  return {reinterpret_cast<const char*>(text.data()), static_cast<std::size_t>(size)};
}

// Processor time of this thread: a busy machine or a debugger must not turn sound text into an
// error.
double thread_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
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
  // Oniguruma before 6.9.9 leaves symbols out of this class, the tokenizers library has them in.
  for (const std::string_view name : {"[:punct:]", "[:^punct:]"}) {
    if (pattern.find(name) != std::string_view::npos)
      throw ConfigError("{}: the regular expression {} has {}: not supported", where,
                        quote(pattern, 200), name);
  }
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
      deadline_(thread_seconds() + kSeconds + kSecondsPerByte * static_cast<double>(n_bytes)) {
  if (!scratch_->region || !scratch_->limits) throw std::bad_alloc();
  onig_initialize_match_param(scratch_->limits.get());
  onig_set_retry_limit_in_match_of_match_param(scratch_->limits.get(), kMostRetries);
  onig_set_match_stack_limit_size_of_match_param(scratch_->limits.get(), kMostStack);
}

RegexMatcher::~RegexMatcher() = default;
RegexMatcher::RegexMatcher(RegexMatcher&&) noexcept = default;

void RegexMatcher::give_up(const std::string& why) const {
  throw ConfigError("{}: the regular expression costs too much on this text: {}", code_->where,
                    why);
}

std::optional<ByteRange> RegexMatcher::match_at(std::string_view text, std::size_t pos) {
  // A step back is counted, the characters that a repeat runs over are not: hence the clock. One
  // call that runs over them again and again is quadratic in the text at worst.
  if (++n_calls_ % kCallsPerClock == 0 && thread_seconds() > deadline_)
    give_up("it backtracks without end");
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

// Compiled alone: GCC warns of anonymous types in the fields of a class where another file includes
// this one.
#include "core/model/regex.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <time.h>
#include <array>

#include <algorithm>
#include <new>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/utf8.hpp"
#include "core/model/regex_syntax.hpp"

namespace kvscope {

namespace {

constexpr std::size_t kMaxPattern = 32768;  // bytes
constexpr std::uint32_t kFirstLimit = 64;   // steps of a first try; almost every match needs fewer
constexpr std::uint32_t kLimitGrowth = 4;
constexpr std::uint32_t kCallsPerClock = 32;
constexpr double kSeconds = 2.0;                 // processor time allowed for any text
constexpr double kSecondsPerByte = 5e-6;         // and what each byte of text adds
constexpr std::uint32_t kHeapLimit = 64 * 1024;  // KiB, without JIT
constexpr std::size_t kJitStackStart = 32 * 1024;
// Address space; used only as far as needed.
constexpr std::size_t kJitStackMost = 32 * 1024 * 1024;

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

// Processor time of this thread: a busy machine or a debugger must not turn sound text into an
// error.
double thread_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <auto free_function>
struct Free {
  template <class T>
  void operator()(T* p) const {
    free_function(p);
  }
};

template <class T, auto free_function>
using Owned = std::unique_ptr<T, Free<free_function>>;

template <class T>
T* or_no_memory(T* p) {
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

}  // namespace

struct Regex::Code {
  Owned<pcre2_code, pcre2_code_free> compiled;
  std::string where;
};

struct RegexMatcher::Scratch {
  Owned<pcre2_match_data, pcre2_match_data_free> match;
  Owned<pcre2_match_context, pcre2_match_context_free> context;
  Owned<pcre2_jit_stack, pcre2_jit_stack_free> stack;
};

Regex::Regex(std::string_view pattern, const std::string& where) {
  if (pattern.size() > kMaxPattern) {
    throw ConfigError("{}: expected a regular expression of at most {} bytes, found {}", where,
                      kMaxPattern, pattern.size());
  }
  const std::string translated = pcre2_from_oniguruma(pattern, where);
  const Owned<pcre2_compile_context, pcre2_compile_context_free> context(
      or_no_memory(pcre2_compile_context_create(nullptr)));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  // Anchored: matches are tried place by place, so that the limits hold for each place.
  constexpr std::uint32_t kOptions = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_ANCHORED |
                                     PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_AUTO_CAPTURE;
  auto code = std::make_shared<Code>();
  code->where = where;
  code->compiled.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()),
                                     translated.size(), kOptions, &error, &offset, context.get()));
  if (!code->compiled) {
    throw ConfigError("{}: the regular expression {} is not valid: {}", where, quote(pattern, 200),
                      message_of(error));
  }
  // Without executable memory there is no JIT; the interpreter then gives the same matches.
  pcre2_jit_compile(code->compiled.get(), PCRE2_JIT_COMPLETE);
  code_ = std::move(code);
}

RegexMatcher::RegexMatcher(const Regex& regex, std::size_t n_bytes)
    : code_(regex.code_),
      scratch_(std::make_unique<Scratch>()),
      deadline_(thread_seconds() + kSeconds + kSecondsPerByte * static_cast<double>(n_bytes)) {
  scratch_->match.reset(
      or_no_memory(pcre2_match_data_create_from_pattern(code_->compiled.get(), nullptr)));
  scratch_->context.reset(or_no_memory(pcre2_match_context_create(nullptr)));
  pcre2_set_heap_limit(scratch_->context.get(), kHeapLimit);
  scratch_->stack.reset(pcre2_jit_stack_create(kJitStackStart, kJitStackMost, nullptr));
  if (scratch_->stack) {
    pcre2_jit_stack_assign(scratch_->context.get(), nullptr, scratch_->stack.get());
  }
}

RegexMatcher::~RegexMatcher() = default;
RegexMatcher::RegexMatcher(RegexMatcher&&) noexcept = default;

void RegexMatcher::give_up(const std::string& why) const {
  throw ConfigError("{}: the regular expression costs too much on this text: {}", code_->where,
                    why);
}

void RegexMatcher::check_time(double reserve) const {
  if (thread_seconds() + reserve > deadline_) give_up("it backtracks without end");
}

std::optional<ByteRange> RegexMatcher::match_at(std::string_view text, std::size_t pos) {
  // PCRE2 counts backtracking steps but not the characters that a repeat runs over, so a step may
  // cost as much as the text is long. The limit on steps only cuts a match into tries that the
  // clock can be read between: each takes about kLimitGrowth times as long as the one before, and
  // is not begun if that is too long.
  if (++n_calls_ % kCallsPerClock == 0) check_time(/*reserve=*/0.0);
  double began = 0.0;
  for (std::uint64_t limit = kFirstLimit;; limit *= kLimitGrowth) {
    const std::uint64_t most = std::min<std::uint64_t>(limit, UINT32_MAX);
    pcre2_set_match_limit(scratch_->context.get(), static_cast<std::uint32_t>(most));
    const int result =
        pcre2_match(code_->compiled.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                    pos, PCRE2_NO_UTF_CHECK, scratch_->match.get(), scratch_->context.get());
    if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
    if (result >= 0) {
      const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(scratch_->match.get());
      return ByteRange{ends[0], ends[1]};
    }
    if (result != PCRE2_ERROR_MATCHLIMIT) give_up(message_of(result));
    if (limit > UINT32_MAX) give_up("it backtracks without end");
    const double now = thread_seconds();
    check_time(limit == kFirstLimit ? 0.0 : kLimitGrowth * (now - began));
    began = now;
  }
}

std::optional<ByteRange> RegexMatcher::find(std::string_view text, std::size_t pos) {
  while (true) {
    if (const auto match = match_at(text, pos)) return match;
    if (pos >= text.size()) return std::nullopt;
    pos += utf8_char_at(text, pos).size;
  }
}

}  // namespace kvscope

#include "core/model/regex.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <new>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/model/regex_syntax.hpp"
#include "core/model/utf8.hpp"

namespace kvscope {

namespace {

constexpr std::size_t kMaxPattern = 32768;  // bytes
constexpr std::uint32_t kFirstLimit = 256;  // steps of a first try; almost every match needs fewer
constexpr std::uint32_t kLimitGrowth = 8;
constexpr std::uint64_t kStepsPerByte = 64;
constexpr std::uint64_t kStepsAtLeast = 4'000'000;
constexpr std::uint32_t kHeapLimit = 64 * 1024;  // KiB, without JIT
constexpr std::size_t kJitStackStart = 32 * 1024;
constexpr std::size_t kJitStackMost = 1024 * 1024;

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
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
    throw ConfigError(fmt::format("{}: expected a regular expression of at most {} bytes, found {}",
                                  where, kMaxPattern, pattern.size()));
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
    throw ConfigError(fmt::format("{}: the regular expression {} is not valid: {}", where,
                                  quote(pattern, 200), message_of(error)));
  }
  // Without executable memory there is no JIT; the interpreter then gives the same matches.
  pcre2_jit_compile(code->compiled.get(), PCRE2_JIT_COMPLETE);
  code_ = std::move(code);
}

RegexMatcher::RegexMatcher(const Regex& regex, std::size_t n_bytes)
    : code_(regex.code_),
      scratch_(std::make_unique<Scratch>()),
      allowance_(kStepsAtLeast + kStepsPerByte * n_bytes) {
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

std::optional<ByteRange> RegexMatcher::match_at(std::string_view text, std::size_t pos) {
  // PCRE2 does not say how many steps a match took, only that it was over a limit. So the limit
  // starts low and grows, and only tries that ran into it are charged: the true cost is within a
  // constant factor.
  const auto give_up = [&](const std::string& why) {
    throw ConfigError(fmt::format("{}: the regular expression costs too much on this text: {}",
                                  code_->where, why));
  };
  for (std::uint64_t limit = kFirstLimit;; limit *= kLimitGrowth) {
    pcre2_set_match_limit(scratch_->context.get(),
                          static_cast<std::uint32_t>(std::min<std::uint64_t>(limit, UINT32_MAX)));
    const int result =
        pcre2_match(code_->compiled.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                    pos, PCRE2_NO_UTF_CHECK, scratch_->match.get(), scratch_->context.get());
    if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
    if (result >= 0) {
      const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(scratch_->match.get());
      return ByteRange{ends[0], ends[1]};
    }
    if (result != PCRE2_ERROR_MATCHLIMIT) give_up(message_of(result));
    if (limit > allowance_) give_up("it backtracks without end");
    allowance_ -= limit;
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

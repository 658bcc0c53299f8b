#include "core/model/normalizer.hpp"

#include <fmt/format.h>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/model/nfc.hpp"

namespace kvscope {

namespace {

constexpr std::size_t kMaxGrowth = 16;
constexpr std::size_t kMaxExtraBytes = 4096;

// One step; empty if it changes nothing.
struct Apply {
  std::string_view text;

  std::optional<std::string> operator()(const NfcStep&) const { return nfc(text); }
  std::optional<std::string> operator()(const PrependStep& step) const {
    if (text.empty() || step.text.empty()) return std::nullopt;
    return step.text + std::string(text);
  }
  std::optional<std::string> operator()(const ReplaceStep& step) const {
    if (text.find(step.from) == std::string_view::npos) return std::nullopt;
    return replace_all(text, step.from, step.to);
  }
};

}  // namespace

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  const std::size_t most = kMaxGrowth * text.size() + kMaxExtraBytes;
  std::string out;
  out.reserve(text.size());
  std::size_t done = 0;
  for (std::size_t at = text.find(from); at != std::string_view::npos; at = text.find(from, done)) {
    out.append(text, done, at - done);
    if (out.size() + to.size() > most) {
      throw ConfigError(fmt::format(
          "tokenizer: exchanging {} for {} makes {} bytes of text longer than {}: expected a "
          "replacement as short as a word mark",
          quote(from), quote(to), text.size(), most));
    }
    out.append(to);
    done = at + from.size();
  }
  out.append(text, done);
  return out;
}

std::optional<std::string> normalize(const std::vector<NormalizerStep>& steps,
                                     std::string_view text) {
  std::optional<std::string> result;
  for (const NormalizerStep& step : steps) {
    if (auto changed = std::visit(Apply{result ? std::string_view(*result) : text}, step)) {
      result = std::move(changed);
      if (result->size() > kMaxGrowth * text.size() + kMaxExtraBytes) {
        throw ConfigError(fmt::format(
            "tokenizer: the normalizer makes {} bytes of {}: expected at most {} times as many",
            result->size(), text.size(), kMaxGrowth));
      }
    }
  }
  return result;
}

}  // namespace kvscope

#include "core/model/normalizer.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/utf8.hpp"
#include "core/model/nfc.hpp"

namespace kvscope {

namespace {

constexpr std::size_t kMaxGrowth = 16;
constexpr std::size_t kMaxExtraBytes = 4096;

// One step; empty if it changes nothing.
struct Apply {
  std::string_view text;
  bool begins_text;

  std::optional<std::string> operator()(const NfcStep&) const { return nfc(text); }
  std::optional<std::string> operator()(const NfkcStep&) const { return nfkc(text); }
  std::optional<std::string> operator()(const PrependStep& step) const {
    if (text.empty() || step.text.empty()) return std::nullopt;
    return step.text + std::string(text);
  }
  std::optional<std::string> operator()(const ReplaceStep& step) const {
    if (text.find(step.from) == std::string_view::npos) return std::nullopt;
    return replace_all(text, step.from, step.to);
  }
  std::optional<std::string> operator()(const SentencePieceStep& step) const;
};

// The beginning of text.substr(at), as the table leaves it, and how many bytes it was.
std::pair<std::string_view, std::size_t> next_piece(const SentencePieceStep& step,
                                                    std::string_view text, std::size_t at) {
  if (const AddedToken* token = step.verbatim->longest_at(text, at)) {
    return {text.substr(at, token->content.size()), token->content.size()};
  }
  if (const auto replacement = step.characters->find(text, at)) {
    return {replacement->text, replacement->n_bytes};
  }
  const std::size_t size = utf8_char_at(text, at).size;
  return {text.substr(at, size), size};
}

std::optional<std::string> Apply::operator()(const SentencePieceStep& step) const {
  std::string out;
  std::size_t at = 0;
  if (step.collapses_spaces) {  // those at the beginning
    while (at < text.size()) {
      const auto [piece, n] = next_piece(step, text, at);
      if (piece != " ") break;
      at += n;
    }
  }
  if (at == text.size()) return out;
  if (step.adds_prefix && begins_text) out += step.space;
  bool after_space = step.collapses_spaces;
  while (at < text.size()) {
    auto [piece, n] = next_piece(step, text, at);
    if (after_space) piece.remove_prefix(std::min(piece.find_first_not_of(' '), piece.size()));
    for (const char c : piece) {
      if (c == ' ') {
        out += step.space;
      } else {
        out += c;
      }
    }
    if (!piece.empty()) after_space = step.collapses_spaces && piece.back() == ' ';
    at += n;
  }
  if (step.collapses_spaces) {
    while (out.ends_with(step.space)) out.resize(out.size() - step.space.size());
  }
  return out;
}

}  // namespace

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  const std::size_t most = kMaxGrowth * text.size() + kMaxExtraBytes;
  std::string out;
  out.reserve(text.size());
  std::size_t done = 0;
  for (std::size_t at = text.find(from); at != std::string_view::npos; at = text.find(from, done)) {
    out.append(text, done, at - done);
    if (out.size() + to.size() > most) {
      throw ConfigError(
          "tokenizer: exchanging {} for {} makes {} bytes of text longer than {}: expected a "
          "replacement as short as a word mark",
          quote(from), quote(to), text.size(), most);
    }
    out.append(to);
    done = at + from.size();
  }
  out.append(text, done);
  return out;
}

std::optional<std::string> normalize(const std::vector<NormalizerStep>& steps,
                                     std::string_view text, bool begins_text) {
  std::optional<std::string> result;
  for (const NormalizerStep& step : steps) {
    if (auto changed =
            std::visit(Apply{result ? std::string_view(*result) : text, begins_text}, step)) {
      result = std::move(changed);
      if (result->size() > kMaxGrowth * text.size() + kMaxExtraBytes) {
        throw ConfigError(
            "tokenizer: the normalizer makes {} bytes of {}: expected at most {} times as many",
            result->size(), text.size(), kMaxGrowth);
      }
    }
  }
  return result;
}

}  // namespace kvscope

#include "core/model/sentencepiece/character_map.hpp"

#include "core/base/error.hpp"
#include "core/base/utf8.hpp"

namespace kvscope {

namespace {

// A unit of the trie (a double array, as the library Darts has it): its label or a value, whether a
// value follows, and how far its children lie from it.
constexpr std::uint32_t kIsValue = std::uint32_t{1} << 31;

bool has_value(std::uint32_t unit) {
  return (unit >> 8 & 1) != 0;
}
std::uint32_t label_of(std::uint32_t unit) {
  return unit & (kIsValue | 0xff);
}
std::uint32_t offset_of(std::uint32_t unit) {
  return (unit >> 10) << ((unit & (std::uint32_t{1} << 9)) >> 6);
}

bool is_inside(std::string_view text, std::size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80;
}

std::uint32_t word_at(std::string_view bytes, std::size_t at) {
  std::uint32_t word = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    word |= std::uint32_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  }
  return word;
}

}  // namespace

CharacterMap::CharacterMap(std::string_view blob, const std::string& where) {
  if (blob.empty()) return;
  const std::uint32_t n_bytes = blob.size() < 4 ? 0 : word_at(blob, 0);
  if (n_bytes < 4 || n_bytes % 4 != 0 || n_bytes > blob.size() - 4) {
    throw FormatError(
        "precompiled_charsmap ({}): expected a trie within its {} bytes, found one of {}", where,
        blob.size(), n_bytes);
  }
  for (std::size_t at = 4; at < 4 + std::size_t{n_bytes}; at += 4) {
    units_.push_back(word_at(blob, at));
  }
  texts_ = blob.substr(4 + std::size_t{n_bytes});
  if (first_invalid_utf8(texts_) || (!texts_.empty() && texts_.back() != '\0')) {
    throw FormatError(
        "precompiled_charsmap ({}): expected texts in UTF-8, each with a zero byte behind it",
        where);
  }
}

std::optional<CharacterMap::Replacement> CharacterMap::find(std::string_view text,
                                                            std::size_t at) const {
  if (units_.empty()) return std::nullopt;
  std::optional<Replacement> found;
  std::size_t node = offset_of(units_[0]);
  for (std::size_t i = at; i < text.size(); ++i) {
    node ^= static_cast<unsigned char>(text[i]);
    if (node >= units_.size()) break;
    const std::uint32_t unit = units_[node];
    if (label_of(unit) != static_cast<unsigned char>(text[i])) break;
    node ^= offset_of(unit);
    if (!has_value(unit) || node >= units_.size()) continue;
    const std::size_t begin = units_[node] & ~kIsValue;
    // Neither a match nor a text ends or begins in the middle of a character.
    if (begin >= texts_.size() || is_inside(texts_, begin) || is_inside(text, i + 1)) continue;
    found = Replacement{i + 1 - at,
                        std::string_view(texts_).substr(begin, texts_.find('\0', begin) - begin)};
  }
  return found;
}

}  // namespace kvscope

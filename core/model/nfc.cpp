#include "core/model/nfc.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <unordered_map>
#include <vector>

#include "core/base/utf8.hpp"
#include "core/model/nfc_tables.hpp"

namespace kvscope {

namespace {

// Hangul syllables are made of 19 leading consonants, 21 vowels and 27 trailing consonants or none
// (The Unicode Standard, section 3.12).
constexpr char32_t kSyllables = 0xac00, kLeading = 0x1100, kVowels = 0x1161, kTrailing = 0x11a7;
constexpr char32_t kNLeading = 19, kNVowels = 21, kNTrailing = 28;

struct Character {
  char32_t code_point;
  std::uint8_t combining_class;
};

std::uint8_t combining_class_of(char32_t c) {
  const auto it = std::upper_bound(
      kCombiningRanges.begin(), kCombiningRanges.end(), c,
      [](char32_t value, const CombiningRange& range) { return value < range.first; });
  if (it == kCombiningRanges.begin() || c > std::prev(it)->last) return 0;
  return std::prev(it)->combining_class;
}

void decompose(char32_t c, std::vector<Character>& out) {
  if (c >= kSyllables && c < kSyllables + kNLeading * kNVowels * kNTrailing) {
    const char32_t s = c - kSyllables;
    out.push_back({kLeading + s / (kNVowels * kNTrailing), 0});
    out.push_back({kVowels + s / kNTrailing % kNVowels, 0});
    if (s % kNTrailing != 0) out.push_back({kTrailing + s % kNTrailing, 0});
    return;
  }
  const auto it = std::lower_bound(
      kDecompositions.begin(), kDecompositions.end(), c,
      [](const Decomposition& entry, char32_t value) { return entry.composed < value; });
  if (it == kDecompositions.end() || it->composed != c) {
    out.push_back({c, combining_class_of(c)});
    return;
  }
  decompose(it->first, out);  // a few levels at most
  if (it->second != 0) decompose(it->second, out);
}

// Marks between two starters (characters of class 0) are ordered by class.
void order_marks(std::vector<Character>& text) {
  const auto is_starter = [](const Character& c) { return c.combining_class == 0; };
  for (auto begin = text.begin(); begin != text.end();) {
    begin = std::find_if_not(begin, text.end(), is_starter);
    const auto end = std::find_if(begin, text.end(), is_starter);
    std::stable_sort(begin, end, [](const Character& a, const Character& b) {
      return a.combining_class < b.combining_class;
    });
    begin = end;
  }
}

// The character that `first` and `second` compose to, or 0.
char32_t composition(char32_t first, char32_t second) {
  if (first >= kLeading && first < kLeading + kNLeading && second >= kVowels &&
      second < kVowels + kNVowels) {
    return kSyllables + ((first - kLeading) * kNVowels + (second - kVowels)) * kNTrailing;
  }
  if (first >= kSyllables && first < kSyllables + kNLeading * kNVowels * kNTrailing &&
      (first - kSyllables) % kNTrailing == 0 && second > kTrailing &&
      second < kTrailing + kNTrailing) {
    return first + (second - kTrailing);
  }
  const auto key = [](char32_t a, char32_t b) { return std::uint64_t{a} << 32 | b; };
  static const auto kCompositions = [&] {
    std::unordered_map<std::uint64_t, char32_t> map;
    for (const Decomposition& entry : kDecompositions) {
      if (entry.composes) map.emplace(key(entry.first, entry.second), entry.composed);
    }
    return map;
  }();
  const auto it = kCompositions.find(key(first, second));
  return it == kCompositions.end() ? 0 : it->second;
}

// A mark composes with the last starter unless a mark of the same or a higher class stands between.
void compose(std::vector<Character>& text) {
  std::size_t n = 0;        // characters kept
  std::size_t starter = 0;  // index of the last starter among them
  bool has_starter = false;
  for (const Character c : text) {
    const bool is_adjacent = has_starter && starter + 1 == n;
    const bool is_open =
        is_adjacent || (has_starter && text[n - 1].combining_class < c.combining_class);
    const char32_t composed = is_open ? composition(text[starter].code_point, c.code_point) : 0;
    if (composed != 0) {
      text[starter].code_point = composed;
      continue;
    }
    if (c.combining_class == 0) {
      starter = n;
      has_starter = true;
    }
    text[n++] = c;
  }
  text.resize(n);
}

}  // namespace

std::optional<std::string> nfc(std::string_view text) {
  // 0xcc is the first byte of U+0300; everything below is its own NFC and composes with nothing
  // before it.
  const bool can_change = std::any_of(text.begin(), text.end(),
                                      [](char c) { return static_cast<unsigned char>(c) >= 0xcc; });
  if (!can_change) return std::nullopt;
  std::vector<Character> characters;
  characters.reserve(text.size());
  for (std::size_t pos = 0; pos < text.size();) {
    const Utf8Char c = utf8_char_at(text, pos);
    decompose(c.code_point, characters);
    pos += c.size;
  }
  order_marks(characters);
  compose(characters);
  std::string out;
  out.reserve(text.size());
  for (const Character& c : characters) append_utf8(out, c.code_point);
  return out;
}

}  // namespace kvscope

// The table by which SentencePiece replaces characters before anything else ("nmt_nfkc" and so on),
// as its files store it: a trie of bytes and the texts that it leads to.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvscope {

/// Replacements for the beginnings of a text. Empty: everything stays.
class CharacterMap {
 public:
  CharacterMap() = default;
  /// `blob` is what the file holds: the trie's size in bytes, its units, the texts, each with a
  /// zero byte behind it. Throws FormatError (`where` names the file) if it is not.
  CharacterMap(std::string_view blob, const std::string& where);

  struct Replacement {
    std::size_t n_bytes;    // of the text that it replaces
    std::string_view text;  // well-formed UTF-8; valid as long as this object
  };
  /// The one for the longest beginning of text.substr(at) that has one.
  std::optional<Replacement> find(std::string_view text, std::size_t at) const;

 private:
  std::vector<std::uint32_t> units_;
  std::string texts_;
};

}  // namespace kvscope

// Added tokens: strings like <|im_start|> that are recognised in the text before anything else.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/model/regex.hpp"
#include "core/model/tokenizer.hpp"

namespace kvscope {

/// One added token; fields as in tokenizer.json.
struct AddedToken {
  std::string content;
  TokenId id = 0;
  bool special = false;      // decode() may leave it out
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // takes the white space behind it along
  bool normalized = false;   // looked for in normalized text, after the others
};

/// A set of tokens that are looked for together: leftmost first, the longest of those that begin at
/// one place.
class AddedTokenSet {
 public:
  AddedTokenSet() = default;
  explicit AddedTokenSet(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }

  /// A stretch of text, or a token in its place.
  struct Segment {
    const AddedToken* token = nullptr;  // null: plain text
    std::string_view text;
  };
  /// The segments of `text` (well-formed UTF-8) in order; the plain ones are not empty.
  std::vector<Segment> split(std::string_view text) const;

  /// The longest token that begins at `pos`, or null.
  const AddedToken* longest_at(std::string_view text, std::size_t pos) const;

 private:
  std::vector<AddedToken> tokens_;
  // A trie over bytes: child of (node, byte), and which token ends at a node.
  std::unordered_map<std::uint64_t, std::uint32_t> child_;
  std::vector<std::int32_t> token_at_node_;  // -1: none
  std::array<bool, 256> can_begin_{};
};

/// Longest content of an added token, in bytes.
inline constexpr std::size_t kMaxAddedToken = 1024;

}  // namespace kvscope

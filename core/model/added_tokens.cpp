#include "core/model/added_tokens.hpp"

#include <algorithm>
#include <utility>

#include "core/base/utf8.hpp"

namespace kvscope {

namespace {

std::uint64_t child_key(std::uint32_t node, char byte) {
  return std::uint64_t{node} << 8 | static_cast<unsigned char>(byte);
}

// A word character: letters, marks, decimal numbers, connectors and the two joiners.
class WordCharacter {
 public:
  explicit WordCharacter(std::size_t n_bytes) : matcher_(expression(), n_bytes) {}

  bool at(std::string_view text, std::size_t pos) {
    return matcher_.match_at(text, pos).has_value();
  }

 private:
  static const Regex& expression() {
    static const Regex regex("[\\w\\x{200c}\\x{200d}]", "word characters");
    return regex;
  }
  RegexMatcher matcher_;
};

// Not further back than `floor`.
std::size_t skip_space_back(std::string_view text, std::size_t pos, std::size_t floor) {
  while (pos > floor) {
    const std::size_t before = utf8_char_before(text, pos);
    if (!is_white_space(utf8_char_at(text, before).code_point)) break;
    pos = before;
  }
  return pos;
}

std::size_t skip_space(std::string_view text, std::size_t pos) {
  while (pos < text.size()) {
    const Utf8Char c = utf8_char_at(text, pos);
    if (!is_white_space(c.code_point)) break;
    pos += c.size;
  }
  return pos;
}

}  // namespace

AddedTokenSet::AddedTokenSet(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  token_at_node_.push_back(-1);
  for (std::size_t t = 0; t < tokens_.size(); ++t) {
    std::uint32_t node = 0;
    for (char byte : tokens_[t].content) {
      const auto next = static_cast<std::uint32_t>(token_at_node_.size());
      const auto [it, is_new] = child_.try_emplace(child_key(node, byte), next);
      if (is_new) token_at_node_.push_back(-1);
      node = it->second;
    }
    token_at_node_[node] = static_cast<std::int32_t>(t);
    can_begin_[static_cast<unsigned char>(tokens_[t].content.front())] = true;
  }
}

const AddedToken* AddedTokenSet::longest_at(std::string_view text, std::size_t pos) const {
  const AddedToken* longest = nullptr;
  if (pos >= text.size() || !can_begin_[static_cast<unsigned char>(text[pos])]) return nullptr;
  std::uint32_t node = 0;
  for (; pos < text.size(); ++pos) {
    const auto it = child_.find(child_key(node, text[pos]));
    if (it == child_.end()) break;
    node = it->second;
    const std::int32_t token = token_at_node_[node];
    if (token >= 0) longest = &tokens_[static_cast<std::size_t>(token)];
  }
  return longest;
}

std::vector<AddedTokenSet::Segment> AddedTokenSet::split(std::string_view text) const {
  std::vector<Segment> segments;
  if (text.empty()) return segments;
  if (tokens_.empty()) return {{nullptr, text}};
  const bool any_single_word = std::any_of(tokens_.begin(), tokens_.end(),
                                           [](const AddedToken& t) { return t.single_word; });
  std::optional<WordCharacter> is_word;
  if (any_single_word) is_word.emplace(text.size());

  std::size_t covered = 0;
  for (std::size_t pos = 0; pos < text.size();) {
    const AddedToken* token = longest_at(text, pos);
    if (token == nullptr) {
      ++pos;
      continue;
    }
    std::size_t begin = pos;
    std::size_t end = pos + token->content.size();
    pos = end;
    if (token->single_word) {
      const bool touches = (begin > 0 && is_word->at(text, utf8_char_before(text, begin))) ||
                           (end < text.size() && is_word->at(text, end));
      if (touches) continue;
    }
    // White space that the token before has taken stays with it; all up to `covered` is such.
    if (token->lstrip) begin = std::max(skip_space_back(text, begin, covered), covered);
    if (token->rstrip) end = skip_space(text, std::max(end, covered));
    // As in the tokenizers library, a token all of which the one before has taken is dropped.
    if (begin >= end) continue;
    if (covered < begin) segments.push_back({nullptr, text.substr(covered, begin - covered)});
    segments.push_back({token, text.substr(pos - token->content.size(), token->content.size())});
    covered = end;
  }
  if (covered < text.size()) segments.push_back({nullptr, text.substr(covered)});
  return segments;
}

}  // namespace kvscope

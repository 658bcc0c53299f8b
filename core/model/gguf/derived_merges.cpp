#include "core/model/gguf/derived_merges.hpp"

#include <algorithm>
#include <tuple>

#include "core/base/utf8.hpp"

namespace kvscope {

namespace {

struct RankedMerge {
  BpeTables::Merge merge;
  double score;
  std::uint32_t n_left;  // characters
  std::uint32_t n_right;
};

// Longer tokens than any vocabulary has would take a square of their length.
constexpr std::size_t kMaxMergedBytes = 1024;

}  // namespace

std::vector<BpeTables::Merge> merges_from_scores(std::span<const std::string> tokens,
                                                 std::span<const double> scores,
                                                 const StringMap<TokenId>& id_from_content) {
  std::vector<RankedMerge> ranked;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::string_view token = tokens[i];
    if (token.size() > kMaxMergedBytes) continue;
    std::uint32_t n_characters = 0;
    for (std::size_t at = 0; at < token.size(); at += utf8_char_at(token, at).size) ++n_characters;
    std::uint32_t n_left = 0;
    for (std::size_t at = 0; at < token.size();) {
      at += utf8_char_at(token, at).size;
      ++n_left;
      if (at == token.size()) break;
      const auto left = id_from_content.find(token.substr(0, at));
      const auto right = id_from_content.find(token.substr(at));
      if (left == id_from_content.end() || right == id_from_content.end()) continue;
      ranked.push_back({{left->second, right->second, static_cast<TokenId>(i)},
                        scores[i],
                        n_left,
                        n_characters - n_left});
    }
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const RankedMerge& a, const RankedMerge& b) {
    return std::tuple(-a.score, -static_cast<std::int64_t>(a.n_left),
                      -static_cast<std::int64_t>(a.n_right)) <
           std::tuple(-b.score, -static_cast<std::int64_t>(b.n_left),
                      -static_cast<std::int64_t>(b.n_right));
  });
  std::vector<BpeTables::Merge> merges;
  merges.reserve(ranked.size());
  for (const RankedMerge& one : ranked) merges.push_back(one.merge);
  return merges;
}

}  // namespace kvscope

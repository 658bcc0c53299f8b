#include "core/model/unigram.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/base/utf8.hpp"

namespace kvscope {

namespace {

// So much less than the worst piece is a character that the vocabulary lacks.
constexpr float kUnknownPenalty = 10.0f;

// SentencePiece 0.2.3 adds scores in floats, and counts from zero again behind sums beyond this, so
// that cuts far into a long text are still told apart. (0.2.1 and older never begin anew, so that
// their cuts of texts beyond some 20,000 tokens may differ.)
constexpr float kLargestSum = 100'000.0f;

// A symbol of the user's is worth more than any pieces in its place.
float user_defined_score(std::size_t n_bytes) {
  return static_cast<float>(0.1 * static_cast<double>(n_bytes - 1));
}

// The best way to cut the text before a place.
struct BestCut {
  std::ptrdiff_t begin = -1;  // of its last piece; -1: none yet
  float score = 0.0f;         // of all its pieces
  TokenId id = -1;            // of the last piece; -1: unknown
};

}  // namespace

// Pieces that begin with the same bytes lie side by side.
struct Unigram::Range {
  std::size_t begin = 0;
  std::size_t end = 0;
};

Unigram::Unigram(UnigramTables tables) : tables_(std::move(tables)) {
  float worst = std::numeric_limits<float>::max();
  for (const UnigramPiece& piece : tables_.pieces)
    if (!piece.is_user_defined) worst = std::min(worst, piece.score);
  unknown_score_ = worst - kUnknownPenalty;
  std::sort(tables_.pieces.begin(), tables_.pieces.end(),
            [](const UnigramPiece& a, const UnigramPiece& b) { return a.text < b.text; });
}

Unigram::Range Unigram::narrow(Range range, std::size_t depth, char byte) const {
  const auto at = [&](std::size_t i) {
    return tables_.pieces.begin() + static_cast<std::ptrdiff_t>(i);
  };
  const auto byte_of = [&](const UnigramPiece& piece) {
    return depth < piece.text.size() ? static_cast<unsigned char>(piece.text[depth]) : -1;
  };
  const int wanted = static_cast<unsigned char>(byte);
  const auto begin =
      std::partition_point(at(range.begin), at(range.end),
                           [&](const UnigramPiece& piece) { return byte_of(piece) < wanted; });
  const auto end = std::partition_point(
      begin, at(range.end), [&](const UnigramPiece& piece) { return byte_of(piece) <= wanted; });
  return {static_cast<std::size_t>(begin - tables_.pieces.begin()),
          static_cast<std::size_t>(end - tables_.pieces.begin())};
}

void Unigram::encode(std::string_view text, std::vector<TokenId>& out) const {
  std::vector<BestCut> best(text.size() + 1);
  std::size_t reached = 0;  // the farthest place that has a cut
  const auto offer = [&](std::size_t begin, std::size_t end, float score, TokenId id) {
    reached = std::max(reached, end);
    BestCut& cut = best[end];
    if (cut.begin >= 0 && !(score > cut.score)) return;
    cut = {static_cast<std::ptrdiff_t>(begin), score, id};
  };
  for (std::size_t at = 0; at < text.size();) {
    if (std::abs(best[at].score) > kLargestSum) {
      const float sum = best[at].score;
      for (std::size_t i = at; i <= reached; ++i) best[i].score -= sum;
    }
    const float so_far = best[at].score;
    const std::size_t one = utf8_char_at(text, at).size;
    bool has_one = false;
    Range range{0, tables_.pieces.size()};
    for (std::size_t end = at; end < text.size();) {
      range = narrow(range, end - at, text[end]);
      if (range.begin == range.end) break;
      ++end;
      const UnigramPiece& piece = tables_.pieces[range.begin];  // the shortest comes first
      if (piece.text.size() != end - at) continue;
      const float score = piece.is_user_defined ? user_defined_score(end - at) : piece.score;
      offer(at, end, score + so_far, piece.id);
      has_one = has_one || end - at == one;
    }
    if (!has_one) offer(at, at + one, unknown_score_ + so_far, -1);
    at += one;
  }

  std::vector<std::pair<std::size_t, BestCut>> cuts;  // from the end
  for (std::size_t end = text.size(); end > 0; end = static_cast<std::size_t>(best[end].begin)) {
    cuts.emplace_back(end, best[end]);
  }
  bool after_unknown = false;
  for (auto it = cuts.rbegin(); it != cuts.rend(); ++it) {
    const auto& [end, cut] = *it;
    if (cut.id >= 0) {
      out.push_back(cut.id);
    } else if (!tables_.byte_ids.empty()) {
      for (auto at = static_cast<std::size_t>(cut.begin); at < end; ++at) {
        out.push_back(tables_.byte_ids[static_cast<unsigned char>(text[at])]);
      }
    } else if (!after_unknown) {
      out.push_back(tables_.unknown_id);
    }
    after_unknown = cut.id < 0;
  }
}

}  // namespace kvscope

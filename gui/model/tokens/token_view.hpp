// The token strip: how much a query looks at every token, which keys methods keep, and the picture
// and the table of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/plot/figure.hpp"
#include "gui/model/map/attention_row.hpp"
#include "gui/model/session/session.hpp"
#include "gui/model/tokens/token_losses.hpp"

namespace kvscope::gui {

/// Positions at the beginning of the text that "mask sinks" leaves out of the shading: as many as
/// StreamingLLM keeps.
inline constexpr Index kSinkTokens = 4;

/// An attention row with its keys ranked.
struct RankedRow {
  Index layer = 0;
  Index q_head = 0;
  AttentionRow row;
  std::vector<std::int32_t> rank;  // [visible.size()] 1 = largest; equal weights by position
  double largest = 0.0;            // weight of any key
  double largest_but_sinks = 0.0;  // of any key from kSinkTokens on
  /// 0 for keys that the query does not see.
  Index rank_of(Index pos) const;
  std::size_t bytes() const { return row.bytes() + rank.size() * sizeof(rank[0]); }
};

/// The row with ranks and largest weights.
RankedRow rank_keys(Index layer, Index q_head, AttentionRow row);

/// How weights become shades.
enum class WeightScale {
  log,         // four decades down from the largest weight
  linear,      // in proportion to the largest weight
  percentile,  // by rank among the visible keys
};

/// Heaviest keys of a query that are struck through where the method drops them.
inline constexpr Index kHeavyKeys = 32;

/// Weights of one row, or a method's losses, to shades in [0, 1]; losses below 0 to [-1, 0].
class Shading {
 public:
  Shading() = default;
  Shading(const RankedRow& row, WeightScale scale, bool mask_sinks);
  /// In proportion to the largest loss, or gain.
  explicit Shading(const TokenLosses& losses) : losses_(&losses), largest_(losses.most) {}
  double shade(Index pos) const;
  bool is_masked(Index pos) const { return mask_sinks_ && pos < kSinkTokens; }
  /// Weight of a full shade.
  double largest() const { return largest_; }

 private:
  const RankedRow* row_ = nullptr;
  const TokenLosses* losses_ = nullptr;
  WeightScale scale_ = WeightScale::log;
  bool mask_sinks_ = false;
  double largest_ = 0.0;
};

/// A weight as tooltips and the CSV write it: all digits that the recording holds.
std::string weight_words(double weight);

/// What became of a key. Of several heads: of most of the weight that they give it.
enum class KeyUse : std::uint8_t {
  unknown,   // the method was not asked about this query
  by_score,  // kept for its score, or because the layer stays dense
  by_rule,   // kept whatever its score: sinks, recent keys, the running chunk
  dropped,
};

/// One method's verdict on the keys of a query.
struct KeyUses {
  Index begin = 0;         // position of the first
  std::vector<KeyUse> of;  // empty: not known
  double lost = 0.0;       // attention on dropped keys, mean over the heads that choose
  KeyUse at(Index pos) const {
    const Index i = pos - begin;
    return i >= 0 && i < static_cast<Index>(of.size()) ? of[static_cast<std::size_t>(i)]
                                                       : KeyUse::unknown;
  }
  bool keeps(Index pos) const { return at(pos) == KeyUse::by_score || at(pos) == KeyUse::by_rule; }
  /// How many keys of the row it keeps, and the attention on them.
  std::pair<Index, double> kept_of(const AttentionRow& row) const;
};

/// One method's keys for the query that is looked at.
struct KeptKeys {
  std::string method;  // "quoka" as it is called in the session
  std::string budget;  // "256 tokens", or empty
  KeyUses uses;
  bool is_dense = false;  // it leaves the layer so
  bool is_known() const { return is_dense || !uses.of.empty(); }
  bool holds(Index pos) const { return is_dense || uses.keeps(pos); }
};

/// "256 tokens", "p = 0.95"; empty without a budget.
std::string budget_words(const std::optional<Budget>& budget);

/// "quoka keeps 256 of 4096 keys, 91.2 % of the attention" of the row.
std::string kept_words(const KeptKeys& kept, const AttentionRow& row);

/// The next of the ascending positions beyond `from` (before it, if not `forward`), around the end;
/// empty without positions.
std::optional<Index> next_match(const std::vector<std::size_t>& found, Index from, bool forward);

/// "3 of 17" if `at` is one of the positions, else "17".
std::string match_words(const std::vector<std::size_t>& found, Index at);

struct TokenFigureInput {
  const Document& document;
  const RankedRow& row;
  WeightScale scale = WeightScale::log;
  bool mask_sinks = false;
  std::vector<KeptKeys> kept;  // of the method, and of the other one
};

/// Attention over positions, kept keys marked. Beyond 600 visible keys neighbours are folded to the
/// largest of them, which the caption says.
plot::Figure token_figure(const TokenFigureInput& input);

/// position, id, text, weight, rank and one column per method (1 kept, 0 not), one line per visible
/// key.
std::string token_csv(const TokenFigureInput& input);

}  // namespace kvscope::gui

// What a method loses at every token: the share of a query's dense attention on keys that it drops,
// of one head, a layer's heads, or all.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/plot/figure.hpp"
#include "gui/model/methods/kept_rows.hpp"
#include "gui/model/tokens/token_lines.hpp"

namespace kvscope::gui {

enum class LossHeads { head, layer, all };

}  // namespace kvscope::gui

namespace kvscope {
template <>
struct EnumNames<gui::LossHeads> {
  static constexpr std::array<std::string_view, 3> value = {"this head", "this layer",
                                                            "all layers"};
};
}  // namespace kvscope

namespace kvscope::gui {

struct LossRequest {
  KeptRequest of;  // its layer and head, as far as `heads` leaves them
  LossHeads heads = LossHeads::head;
  /// Everything that determines the result, as a cache key.
  std::string key() const;
};

/// Means over the heads that choose; the tokens of layers or calls that stay dense are not there.
struct TokenLosses {
  std::vector<Index> pos;    // measured queries, ascending
  std::vector<double> lost;  // [pos.size()] in [0, 1]
  double mean = 0.0;
  std::size_t worst = 0;  // of pos; 0 without any
  std::size_t bytes() const { return sizeof *this + pos.size() * (sizeof(Index) + sizeof(double)); }
  bool empty() const { return pos.empty(); }
  double largest() const { return empty() ? 0.0 : lost[worst]; }
  /// Of the measured query at the position, or of the one before it where not all were measured.
  std::optional<double> at(Index position) const;
};

/// Throws what replay_layers throws. The same for any number of threads.
TokenLosses token_losses(const TraceSource& trace, const TraceSource* draft,
                         const LossRequest& request, JobContext& job);

/// A paragraph, or a part of a long one.
struct LossSection {
  TokenRange tokens;
  double mean = 0.0;
  Index worst = 0;  // position
};

/// The `n` sections of largest mean loss, the worst first. They end with a line break of the text,
/// or after 128 tokens.
std::vector<LossSection> worst_sections(const TokenLosses& losses, const TokenTexts& texts,
                                        std::size_t n);

/// "loses 12.3% of the attention on average, at most 86.0%".
std::string loss_words(const TokenLosses& losses, const LossRequest& request);

/// Losses over positions. Beyond 600 tokens neighbours are folded to the largest of them.
plot::Figure loss_figure(const TokenLosses& losses, const LossRequest& request,
                         const Document& document);
/// position, id, text, lost: one line per measured token.
std::string loss_csv(const TokenLosses& losses, const Document& document);

}  // namespace kvscope::gui

// What a method loses at every token: the share of a query's dense attention on keys that it drops,
// or the error of its output, of one head, a layer's heads, or all; or, in the running model, what
// the next token loses (next_token_losses.hpp). Two methods are compared by the difference.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/plot/figure.hpp"
#include "core/sim/replay.hpp"
#include "gui/model/session/session.hpp"
#include "gui/model/tokens/token_lines.hpp"

namespace kvscope::gui {

enum class LossHeads { head, layer, all };
enum class LossKind { mass, output, next_token };

}  // namespace kvscope::gui

namespace kvscope {
template <>
struct EnumNames<gui::LossHeads> {
  static constexpr std::array<std::string_view, 3> value = {"this head", "this layer",
                                                            "all layers"};
};
template <>
struct EnumNames<gui::LossKind> {
  static constexpr std::array<std::string_view, 3> value = {"mass", "output", "next token"};
};
}  // namespace kvscope

namespace kvscope::gui {

/// What is asked of a method: its lists, or what it loses.
struct LossRequest {
  Index layer = 0;  // as the head, as far as `heads` leaves it
  Index q_head = 0;
  Phase phase = Phase::prefill;
  Index chunk = 128;
  MethodSpec spec;
  std::optional<Budget> budget;  // empty for methods that take none
  Index dense_layers = 0;
  /// Measured queries per prefill chunk, evenly spaced; empty = all of them.
  std::optional<Index> rows_per_chunk;
  LossHeads heads = LossHeads::head;
  LossKind kind = LossKind::mass;  // of losses
  /// Everything that determines the result, as a cache key.
  std::string key() const;
  /// Of all heads; at most 1024 of the decoded steps.
  ReplayOptions replay(const TraceInfo& info) const;
};

/// What to compute for the session's selection, its layer and head and its sliders, and of which
/// files.
struct MethodQuestion {
  LossRequest request;
  std::shared_ptr<const Document> trace;
  std::shared_ptr<const Document> draft;  // null for methods that need none
  std::string obstacle;                   // a sentence: why there is no answer; empty if there is
};
/// For the phase, heads and kind of `asked`. Rows per chunk keep what is computed of a whole trace
/// small: all up to 8192 tokens, then fewer. Needs an open trace.
MethodQuestion method_question(const Session& session, const MethodSpec& method,
                               const LossRequest& asked);

/// Means over the heads that choose; the tokens of layers or calls that stay dense are not there.
struct TokenLosses {
  std::vector<Index> pos;  // measured queries, ascending
  /// [pos.size()] mass: in [0, 1]; output: error over the norm of the dense output; next token:
  /// nats, below 0 where the method does better.
  std::vector<double> lost;
  double mean = 0.0;
  std::size_t worst = 0;     // of pos; 0 without any
  double most = 0.0;         // of the absolute values
  LossRequest request = {};  // what was asked; of a difference: of the first
  /// A position after those before.
  void add(Index position, double loss);
  std::size_t bytes() const { return sizeof *this + pos.size() * (sizeof(Index) + sizeof(double)); }
  bool empty() const { return pos.empty(); }
  double largest() const { return empty() ? 0.0 : lost[worst]; }
  /// Of the measured query at the position, or of the one before it where not all were measured, as
  /// far as some were.
  std::optional<double> at(Index position) const;
  bool is_measured(Index position) const { return std::ranges::binary_search(pos, position); }
};

/// Throws what replay_layers or next_token_losses throws, and ConfigError where the output of a
/// method is made of more than its keys (summaries, weights). The same for any number of threads.
TokenLosses token_losses(const TraceSource& trace, const TraceSource* draft,
                         const LossRequest& request, JobContext& job);

/// What the first loses more than the second, where both were measured.
TokenLosses difference_of(const TokenLosses& losses, const TokenLosses& other);

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

/// "12.3%" of a mass or an output, "0.31 nats" of a next token.
std::string loss_number(double loss, LossKind kind);
/// "loses 12.3 % of the attention on average, at most 86.0 %".
std::string loss_words(const TokenLosses& losses);
/// "loses 2.0 % more than Quest on average: 31.0 % more at most, 12.0 % less at least".
std::string difference_words(const TokenLosses& difference, const LossRequest& other);

/// Losses over positions, and those of another method; null: none. Beyond 600 tokens neighbours are
/// folded to the largest of them.
plot::Figure loss_figure(const TokenLosses& losses, const TokenLosses* other,
                         const Document& document);
/// position, id, text, lost and the other's: one line per token that is measured for both.
std::string loss_csv(const TokenLosses& losses, const TokenLosses* other, const Document& document);

}  // namespace kvscope::gui

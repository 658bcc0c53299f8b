// Recall against cost: what the ticked methods keep at a ladder of budgets, as curves along
// the keys, bytes or FLOPs that were measured (or the nominal budget), and as numbers at
// the sliders' budget.
//
//   plan_recall    which rows are needed: one item per method and layer (method_rows.hpp)
//   recall_picture the rows that are there, as the figure that `kvscope figure budget` makes
//   recall_place   what a click on the figure means
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analysis/figures/figure_kind.hpp"
#include "core/base/nan.hpp"
#include "gui/model/methods/method_rows.hpp"
#include "gui/model/session/methods.hpp"

namespace kvscope::gui {

/// What the curves run along.
enum class RecallAlong { keys, bytes, flops, budget };
enum class RecallMetric { mass, top10_recall, topk_recall, output_error, relative_error };
enum class RecallScope { head, layer, all_layers };
enum class RecallPhase { of_query, prefill, decode };
enum class AxisScale { linear, log };

}  // namespace kvscope::gui

namespace kvscope {
template <>
struct EnumNames<gui::RecallAlong> {
  static constexpr std::array<std::string_view, 4> value = {"keys kept", "bytes", "FLOPs",
                                                            "nominal budget"};
};
template <>
struct EnumNames<gui::RecallMetric> {
  static constexpr std::array<std::string_view, 5> value = {
      "attention mass", "top-10 recall", "top-k recall", "output error", "relative error"};
};
template <>
struct EnumNames<gui::RecallScope> {
  static constexpr std::array<std::string_view, 3> value = {"head", "layer", "all layers"};
};
template <>
struct EnumNames<gui::RecallPhase> {
  static constexpr std::array<std::string_view, 3> value = {"of query", "prefill", "decode"};
};
}  // namespace kvscope

namespace kvscope::gui {

/// The panel's switches.
struct RecallOptions {
  RecallAlong along = option(
      along, "along", RecallAlong::keys,
      "the first axis: keys kept, bytes or FLOPs as measured, or the budget that methods are told");
  RecallMetric metric = option(metric, "metric", RecallMetric::mass,
                               "what is measured against dense attention, as the mean over heads");
  RecallScope scope = option(scope, "scope", RecallScope::layer,
                             "the selected head, all heads of its layer, or all recorded layers");
  RecallPhase phase = option(phase, "phase", RecallPhase::of_query,
                             "prefill chunks, decode steps, or the phase of the selected query");
  BandKind band =
      option(band, "band", BandKind::ci,
             "over heads: 95 % interval of the mean (ci), median and middle half, smallest to "
             "largest, or no bands");
  AxisScale x = option(x, "x", AxisScale::log, "scale of the first axis");
  AxisScale y = option(y, "y", AxisScale::linear, "scale of the metric");
  double target = option(
      target, "target", 0.9,
      "of shares: the least that a method should reach; heads below it are listed, and the budget "
      "that reaches it is looked up (0: off)",
      in(0.0, 1.0));
  bool opened =
      option(opened, "opened", true, "curves of opened sweeps, besides those computed here");
  bool operator==(const RecallOptions&) const = default;
};

/// What is looked at: everything but the rows.
struct RecallQuestion {
  std::string trace;         // file name, for the caption
  std::string content_hash;  // of the trace; empty while it is recorded
  Index layer = 0;
  Index q_head = 0;
  std::vector<Index> layers;  // recorded ones
  Index n_tokens = 0;
  Index n_queries = 0;  // of the phase, of which some are measured; 0: not said
  Phase phase = Phase::prefill;
  MethodSpec selector;  // the selected method
  Parameters parameters;
  std::vector<MethodItem> methods;  // ticked ones only
  RecallOptions options;
  std::string key() const;
};

/// True if the metric is a share, so that a target makes sense.
bool metric_is_share(RecallMetric metric);

/// The table of an opened sweep.
struct OpenedSweep {
  std::string name;                       // file name
  std::vector<std::string> trace_hashes;  // of which it says it is made; a .csv says nothing
  std::shared_ptr<const Table> table;
  double chunk = kNan;  // of prefill; NaN: it does not say
};

/// Powers of two up to the number of tokens, from 16 (from 1 for very short traces).
std::vector<Index> budget_ladder(Index n_tokens);

/// One thing to compute: an item of the panel's queue.
struct RecallItem {
  std::size_t method = 0;  // in RecallQuestion::methods
  MethodRowsRequest request;
  bool is_ladder = true;  // false: the sliders' budget alone
};

/// The ladder of every method without an obstacle, and the current budget where it lies between
/// two steps: a separate item, so that moving the slider leaves the ladder in the cache. Oracles,
/// which cost most, come last.
std::vector<RecallItem> plan_recall(const RecallQuestion& question);

/// One line of the table below the curves: means over the heads that the curves show; NaN while
/// the budget's are still to come.
struct RecallNumbers {
  std::string name;
  std::string budget;  // "256", "p = 0.95", or empty: the method takes none
  std::size_t n_heads = 0;
  double mass = 0.0;
  double recall10 = 0.0;
  double recallk = 0.0;
  double output_error = 0.0;
  double kept = 0.0;   // keys per query row
  double bytes = 0.0;  // read per query head and call
  /// The smallest budget of the ladder (tokens) whose mean reaches the target; empty: none does, or
  /// the method takes no tokens.
  std::optional<Index> for_target;
};

/// A head that the selected method leaves below the target at the sliders' budget.
struct FailingHead {
  Index layer = 0;
  Index q_head = 0;
  double value = 0.0;
  std::optional<Index> needed;  // smallest budget of the ladder at which it is not; empty: none
};

struct RecallPicture {
  plot::Figure figure;   // without panels if there is nothing to see
  std::string sentence;  // why there is nothing, with the next step
  /// What every live curve and number is of, the methods that lack a part left out:
  std::string of;          // "layers 0 to 4, all query heads, 264 of 4096 queries": one trace's
  std::string unfinished;  // "5 of 8 layers so far; ...": what is still to come; empty: nothing
  /// What the figure does not show and why: for who looks at the window, not for its caption.
  std::vector<std::string> notes;
  /// Per mark of the figure's panel the method it belongs to.
  std::vector<std::string> mark_methods;
  /// [mark][point] the budget in tokens; NaN where the method takes none. Empty for marks without
  /// a method.
  std::vector<std::vector<double>> mark_budgets;
  std::vector<RecallNumbers> numbers;  // in the order of the question's methods
  std::vector<FailingHead> failing;    // of the selected method, worst first
  std::string failing_method;          // empty: it is not ticked, or the metric is no share
  RecallAlong along = RecallAlong::budget;
  /// The mark by which places without a curve are read: the selected method's, else the first with
  /// budgets.
  std::optional<std::size_t> reference;
  std::size_t bytes() const;
};

/// The curves of the rows that are there, all over the same layers: those that were asked for, of
/// the methods that have them all; until one has, the layers that all methods with a ladder have.
/// rows: by item of plan_recall; null = not computed.
RecallPicture recall_picture(const RecallQuestion& question, const std::vector<RecallItem>& items,
                             const std::vector<std::shared_ptr<const MethodRows>>& rows,
                             const std::vector<OpenedSweep>& opened = {});

/// Colour, marker and dash of every method of the question, as the figure has them.
std::vector<plot::Tone> recall_tones(const std::vector<MethodItem>& methods);

/// Where a budget lies on the first axis, by the curve of a mark: between its points along the
/// logarithm of both. Empty: the mark has no budgets.
std::optional<double> place_of_budget(const RecallPicture& picture, std::size_t mark,
                                      double budget);

/// The figure with a rule at the current budget, where the reference method's curve has it: what an
/// export shows.
plot::Figure with_budget_rule(plot::Figure figure, const RecallPicture& picture, Index budget);

/// What a click at `x` means: the nearest budget of the ladder (none on the mark of a method that
/// takes no tokens), and the method whose mark was hit. Along what was measured, the budget is read
/// from the curve that was hit, or from the reference curve.
struct RecallPlace {
  std::optional<Index> budget;
  std::string method;  // empty: none was hit
};
RecallPlace recall_place(const RecallPicture& picture, Index n_tokens, double x,
                         std::optional<std::size_t> mark);

}  // namespace kvscope::gui

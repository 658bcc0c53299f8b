// Recall against budget: what the ticked methods keep at a ladder of budgets, as curves and as
// numbers at the budget of the sliders.
//
//   plan_recall    which rows are needed: one item per method and layer (gui/model/method_rows.hpp)
//   recall_picture the rows that are there, as the figure that `kvscope figure budget` makes
//   recall_place   what a click on the figure means
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analysis/figures/figure_kind.hpp"
#include "gui/model/method_items.hpp"
#include "gui/model/method_rows.hpp"

namespace kvscope::gui {

enum class RecallMetric { mass, top10_recall, topk_recall, output_error, relative_error };
enum class RecallScope { head, layer, all_layers };
enum class RecallPhase { of_query, prefill, decode };
enum class AxisScale { linear, log };

}  // namespace kvscope::gui

namespace kvscope {
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
template <>
struct EnumNames<gui::AxisScale> {
  static constexpr std::array<std::string_view, 2> value = {"linear", "log"};
};
}  // namespace kvscope

namespace kvscope::gui {

/// The panel's switches.
struct RecallOptions {
  RecallMetric metric = RecallMetric::mass;
  RecallScope scope = RecallScope::layer;
  RecallPhase phase = RecallPhase::of_query;
  BandKind band = BandKind::ci;
  AxisScale x = AxisScale::log;
  AxisScale y = AxisScale::linear;
  bool operator==(const RecallOptions&) const = default;

  template <class Self, class Visit>
  static void visit_fields(Self& self, Visit&& visit) {
    visit(Field{"metric", "what is measured"}, self.metric);
    visit(Field{"scope", "the selected head, all heads of its layer, or all layers"}, self.scope);
    visit(Field{"phase", "prefill chunks, decode steps, or that of the selected query"},
          self.phase);
    visit(
        Field{"band",
              "over heads: mean and 95 % interval, median and quartiles, mean and range, or none"},
        self.band);
    visit(Field{"x", "scale of the budgets"}, self.x);
    visit(Field{"y", "scale of the metric"}, self.y);
  }
};

/// What is looked at: everything but the rows.
struct RecallQuestion {
  std::string trace;  // file name, for the caption
  Index layer = 0;
  Index q_head = 0;
  std::vector<Index> layers;  // recorded ones
  Index n_tokens = 0;
  Phase phase = Phase::prefill;
  MethodSpec selector;  // the selected method
  Parameters parameters;
  std::vector<MethodItem> methods;  // ticked ones only
  RecallOptions options;
  std::string key() const;
};

/// Powers of two up to the number of tokens, from 16 (from 1 for very short traces).
std::vector<Index> budget_ladder(Index n_tokens);

/// One thing to compute: an item of a SlotQueue.
struct RecallItem {
  std::size_t method = 0;  // in RecallQuestion::methods
  MethodRowsRequest request;
};

/// The ladder of every method without an obstacle, and the current budget where it lies between
/// two steps: a separate item, so that moving the slider leaves the ladder in the cache. Oracles,
/// which cost most, come last.
std::vector<RecallItem> plan_recall(const RecallQuestion& question);

/// One line of the table below the curves: means over the heads that the curves show.
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
};

struct RecallPicture {
  plot::Figure figure;   // without panels if there is nothing to see
  std::string sentence;  // why there is nothing, with the next step
  /// Per mark of the figure's panel the method it belongs to.
  std::vector<std::string> mark_methods;
  std::vector<RecallNumbers> numbers;  // in the order of the question's methods
  std::size_t bytes() const;
};

/// The curves of the rows that are there. rows: by item of plan_recall; null = not computed.
RecallPicture recall_picture(const RecallQuestion& question, const std::vector<RecallItem>& items,
                             const std::vector<std::shared_ptr<const MethodRows>>& rows);

/// Colour, marker and dash of every method of the question, as the figure has them.
std::vector<plot::Tone> recall_tones(const std::vector<MethodItem>& methods);

/// The figure with a rule at the current budget: what an export shows.
plot::Figure with_budget_rule(plot::Figure figure, Index budget);

/// What a click at `x` means: the nearest budget of the ladder (none on the mark of a method that
/// takes no tokens), and the method whose mark was hit.
struct RecallPlace {
  std::optional<Index> budget;
  std::string method;  // empty: none was hit
};
RecallPlace recall_place(const RecallPicture& picture, Index n_tokens, double x,
                         std::optional<std::size_t> mark);

}  // namespace kvscope::gui

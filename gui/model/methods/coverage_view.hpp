// Coverage of one method at one budget: what every head keeps, and which pages of keys it loses.
//
// Two maps. Heads: layer x query head, from rows of a sweep (method_rows.hpp), layer by
// layer. Pages: query block x page of one layer, the analysis of `kvscope analyze coverage`.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analysis/figures/figure_kind.hpp"
#include "gui/model/methods/method_rows.hpp"
#include "gui/model/methods/recall_view.hpp"
#include "gui/model/session/methods.hpp"
#include "gui/model/traces/trace_part.hpp"

namespace kvscope::gui {

enum class CoverageView { both, heads, pages };
enum class PagesPart { attention, kept, lost, selected };
enum class PagesHeads { all, selected };

}  // namespace kvscope::gui

namespace kvscope {
template <>
struct EnumNames<gui::PagesHeads> {
  static constexpr std::array<std::string_view, 2> value = {"all heads", "this head"};
};
}  // namespace kvscope

namespace kvscope::gui {

/// The panel's switches.
struct CoverageSwitches {
  CoverageView view =
      option(view, "view", CoverageView::both, "the map of heads, that of pages, or both");
  RecallMetric metric = option(metric, "metric", RecallMetric::mass,
                               "heads: what is measured against dense attention");
  PagesPart part = option(
      part, "part", PagesPart::kept,
      "pages: where the attention lies, what the method keeps or loses of it, or the share of a "
      "page's visible keys that it selects");
  PagesHeads heads = option(heads, "heads", PagesHeads::all,
                            "pages: mean over all heads of the layer, or the selected head alone");
  bool lock_colours = option(lock_colours, "lock-colours", false,
                             "colours keep their meaning when layer, method or budget change, so "
                             "that pictures can be compared");
  double heads_low = option(heads_low, "heads-low", 0.0, "locked colours of the heads: low end");
  double heads_high =
      option(heads_high, "heads-high", 1.0, "locked colours of the heads: high end");
  double pages_low = option(pages_low, "pages-low", 1e-6, "locked colours of the pages: low end");
  double pages_high =
      option(pages_high, "pages-high", 1.0, "locked colours of the pages: high end");
  bool operator==(const CoverageSwitches&) const = default;
};

// ---- layer x head ----

struct HeadsQuestion {
  std::string trace;  // file name, for the caption
  std::vector<Index> layers;
  std::vector<Index> q_heads;
  Index layer = 0;  // computed first
  Index n_tokens = 0;
  Phase phase = Phase::prefill;
  MethodItem method;
  Parameters parameters;
  RecallMetric metric = RecallMetric::mass;
  std::string key() const;
};

/// One request per layer, the selected one first; a single one for methods that pass context
/// between layers.
std::vector<MethodRowsRequest> plan_heads(const HeadsQuestion& question);

struct HeadsPicture {
  plot::Figure figure;     // without panels if there is nothing to see
  std::string sentence;    // why there is nothing
  std::string unfinished;  // what is still to come; empty: nothing
  std::vector<SweepRow> rows;
  std::size_t bytes() const;
  /// The row of a head; null if it is not computed.
  const SweepRow* find(Index layer, Index q_head) const;
};

/// The figure coverage-heads of the rows that are there; layers to come are masked. rows: by
/// request; null = not computed.
HeadsPicture heads_picture(const HeadsQuestion& question,
                           const std::vector<std::shared_ptr<const MethodRows>>& rows);

/// The metric's number in a row.
double metric_of(const SweepRow& row, RecallMetric metric);

// ---- query block x page ----

struct PagesRequest {
  Index layer = 0;
  std::optional<Index> q_head;  // empty: all
  Phase phase = Phase::prefill;
  Index chunk = 128;
  MethodSpec spec;  // empty: the attention alone
  std::optional<Budget> budget;
  Index dense_layers = 0;
  Index rows_per_chunk = 8;
  Index query_block = 128;
  Index page_size = 16;
  std::string key() const;
};

/// The request with blocks of a prefill chunk, or of few enough decode steps that each holds a
/// measured one.
PagesRequest pages_request(const TraceInfo& info, Index layer, std::optional<Index> q_head,
                           Phase phase, const MethodItem& method, const Parameters& parameters);

/// One cell of the maps. NaN: no measured row sees the page.
struct PageCell {
  TokenRange block;
  TokenRange page;
  double attention = 0.0;
  std::optional<double> kept;  // empty without a method
  std::optional<double> selected;
};

/// The result of `kvscope analyze coverage` for one layer and at most one method.
class CoveragePages {
 public:
  CoveragePages(MemoryResult result, PagesRequest request);
  const MemoryResult& result() const { return result_; }
  const PagesRequest& request() const { return request_; }
  bool has_method() const { return has_method_; }
  std::size_t bytes() const { return sizeof *this + bytes_of(result_); }
  /// The cell at a key and a query position; empty outside the maps.
  std::optional<PageCell> cell_at(double key, double query) const;
  /// First positions (query, key) of the last block's first page and of each block's diagonal
  /// page, for at most 16 blocks: cells that some query sees.
  std::vector<std::pair<Index, Index>> some_cells() const;

 private:
  MemoryResult result_;
  PagesRequest request_;
  std::vector<double> blocks_;  // first positions
  std::vector<double> pages_;
  bool has_method_ = false;
};

/// Throws what analyze_coverage throws.
CoveragePages coverage_pages(const TraceSource& trace, const TraceSource* draft,
                             const PagesRequest& request, JobContext& job);

/// The one panel of figure coverage-pages that shows the part. Throws ConfigError if the result
/// holds no method and a part of one is asked for.
plot::Figure pages_figure(const CoveragePages& pages, PagesPart part, const std::string& trace);

/// Where a click leads: the last query of the block, which is always measured, and the first key of
/// the page, never beyond the query. n_rows_end: one past the last position of the phase.
struct PagePlace {
  Index query = 0;
  Index key = 0;
};
PagePlace page_place(const PageCell& cell, Index n_rows_end);

/// The figure with other colour ranges: what "lock colours" keeps.
void set_colours(plot::Figure& figure, double low, double high);

}  // namespace kvscope::gui

// An analysis that the window asked for, as a result that was opened: its figure kind draws it, and
// a mark of that figure stands for one element of an array, beside those of all arrays of its axes.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/base/analysis.hpp"
#include "analysis/plot/figure.hpp"
#include "core/trace/result.hpp"
#include "core/trace/source.hpp"
#include "gui/model/jobs/jobs.hpp"

namespace kvscope::gui {

/// What of a trace the analysis sees: the selected head, its KV group, all heads of its layer; the
/// whole trace, of which it takes the layer itself, or all of it; or two traces.
enum class AnalysisScope { head, group, heads, layer, trace, pair };

/// What an analysis adds for the window.
struct AnalysisCard {
  std::string figure;                // the kind that draws its result
  std::vector<std::string> metrics;  // of the figure's option; the first is shown first
  std::string rows;                  // the array whose elements marks stand for: "cos"
  std::string query;                 // positions along its third axis: "row_pos"; empty: none
  std::string key;                   // of its elements: "star_pos"
  Index page_size = 0;               // not 0: its last axis are pages of so many keys
  AnalysisScope scope = AnalysisScope::head;
  /// Options that sessions of before hold as words under another name.
  std::vector<std::pair<std::string, std::string>> renamed;
  bool lists_figure = false;  // its table is the figure's, not that of the arrays
  bool first_alone = false;   // where there is little room, the figure's first panel is shown alone
  std::string selector;       // of the figure's options, and
  std::string against;        // what it is less: under the metric "difference"
  /// Arrays that are said of the selected query; in "*/mass" the star stands for the metric.
  std::vector<std::string> words;
};

/// What was computed: one head's numbers, or a whole trace's beside those of its draft.
struct AnalysisPart {
  std::optional<Index> layer;
  std::optional<Index> q_head;
};

class AnalysisValue {
 public:
  /// Runs `analyze` into memory. Throws what that throws.
  AnalysisValue(AnalysisCard card, AnalysisPart part, std::string what,
                const std::function<void(const AnalysisRun&)>& analyze, JobContext& job);

  /// Throws ConfigError where there is nothing to draw.
  plot::Figure figure(const std::string& metric) const;
  const AnalysisCard& card() const { return card_; }
  /// As the analysis wrote it.
  const nlohmann::ordered_json& config() const { return result_.info().config; }

  std::optional<Index> query_of(std::size_t row) const;
  std::optional<Index> key_of(std::size_t row) const;
  /// The measured query at, or nearest to, a position.
  std::optional<Index> nearest_query(Index query) const;
  /// Names and values of a row, with units, as the result names them.
  std::vector<std::pair<std::string, std::string>> lines(std::size_t row) const;
  /// What the card says of a query, of its first row that has a number; empty if none has.
  std::string words(Index query, const std::string& metric) const;
  /// Rows of the selected head.
  std::pair<std::size_t, std::size_t> rows() const { return {first_, end_}; }
  double at(std::string_view array, std::size_t row) const;
  /// Its place in an array of two axes.
  std::optional<std::size_t> row_of_cell(Index row, Index col) const;
  /// All rows that have a number: query, key, and every array of their axes.
  std::string csv() const;

  std::size_t bytes() const;

 private:
  struct Column {
    std::string name;
    std::string title;  // "KL divergence (nat)"
    bool is_flag = false;
    std::size_t stride = 1;
    std::vector<double> values;
  };
  const Column& column(std::string_view name) const;

  AnalysisCard card_;
  AnalysisPart part_;
  MemoryResult result_;
  Shape shape_;
  std::vector<Column> columns_;  // that of card_.rows first
  std::vector<Index> queries_;
  std::size_t first_ = 0;  // rows of the part
  std::size_t end_ = 0;
};

}  // namespace kvscope::gui

// kvscope analyze query-selection: S_q against the largest attention weight of a query.
#include <nlohmann/json.hpp>

#include "analysis/cli/analyze_one.hpp"
#include "analysis/query_selection.hpp"
#include "core/base/number_text.hpp"

namespace kvscope::cli {
namespace {

class AnalyzeQuerySelection final : public AnalyzeOne<QuerySelectionOptions> {
 public:
  AnalyzeQuerySelection()
      : AnalyzeOne("query-selection", "QuoKA's S_q against the log of the largest attention weight",
                   analyze_query_selection) {}

 private:
  std::string about() const override {
    return "Does S_q = -cos(query, mean query) find the queries that put much weight on one key? "
           "The mean is the prompt's, and for the columns named after the chunk that of the "
           "query's own prefill chunk. Later queries see more keys and have smaller weights, so "
           "the partial correlations hold the position fixed: linearly (partial) or by ranks "
           "(partial ranks). Rows are means over the heads; partial > 0 is the share of heads in "
           "which it is positive; the best head is that of the largest Pearson correlation, so "
           "expect it to be above the mean by chance.";
  }
  std::vector<ReportColumn> columns() const override {
    return {{"prompt_pearson_log", "Pearson"},
            {"prompt_spearman", "Spearman"},
            {"prompt_partial_pearson", "partial"},
            {"prompt_partial_spearman", "partial ranks"},
            {"partial_positive", "partial > 0"},
            {"chunk_pearson_log", "chunk mean"},
            {"within_chunk", "within chunk"},
            {"best_pearson_log", "best head"},
            {"best_head", "which"}};
  }
  std::string headline(const Json& totals) const override {
    return fmt::format(
        "S_q and the log of the largest weight: Pearson {}, Spearman {}; given the position {} and "
        "{}; within a chunk {}",
        number_text(total_of(totals, "prompt_pearson_log"), 3),
        number_text(total_of(totals, "prompt_spearman"), 3),
        number_text(total_of(totals, "prompt_partial_pearson"), 3),
        number_text(total_of(totals, "prompt_partial_spearman"), 3),
        number_text(total_of(totals, "within_chunk"), 3));
  }
};

}  // namespace

std::unique_ptr<Command> make_analyze_query_selection_command() {
  return std::make_unique<AnalyzeQuerySelection>();
}

}  // namespace kvscope::cli

// kvscope analyze pruning: how many pages must be read to choose keys exactly.
#include <nlohmann/json.hpp>

#include "analysis/cli/analyze_one.hpp"
#include "analysis/pruning.hpp"
#include "core/base/number_text.hpp"

namespace kvscope::cli {
namespace {

class AnalyzePruning final : public AnalyzeOne<PruningOptions> {
 public:
  AnalyzePruning()
      : AnalyzeOne("pruning", "Exact choosing without reading every key: pages that bounds leave",
                   analyze_pruning) {}

 private:
  std::vector<Index> unit_layers(const Traces& traces) const override { return all_layers(traces); }
  std::vector<ReportColumn> columns() const override {
    return {{"quoka_read", "QuoKA reads"},   {"quoka_hold", "holds"},  {"quoka_page_size", "page"},
            {"oracle_read", "oracle reads"}, {"oracle_hold", "holds"}, {"oracle_page_size", "page"},
            {"sparq_read", "SparQ reads"},   {"sparq_hold", "holds"},  {"sparq_page_size", "page"}};
  }
  std::string headline(const Json& totals) const override {
    return fmt::format(
        "of the pages at the longest context must be read, for the exact keys: QuoKA {}, exact "
        "scores {}, SparQ {}; with the boxes' own bytes {}, {} and {} of the keys",
        number_text(total_of(totals, "quoka_read"), 3),
        number_text(total_of(totals, "oracle_read"), 3),
        number_text(total_of(totals, "sparq_read"), 3),
        number_text(total_of(totals, "quoka_traffic"), 3),
        number_text(total_of(totals, "oracle_traffic"), 3),
        number_text(total_of(totals, "sparq_traffic"), 3));
  }
};

}  // namespace

std::unique_ptr<Command> make_analyze_pruning_command() {
  return std::make_unique<AnalyzePruning>();
}

}  // namespace kvscope::cli

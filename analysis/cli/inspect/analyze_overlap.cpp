// kvscope analyze overlap: which keys methods share, and who keeps what the others drop.
#include <fmt/format.h>

#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/text_table.hpp"
#include "analysis/cli/inspect/analyze_one.hpp"
#include "analysis/kinds/overlap.hpp"
#include "core/base/json.hpp"

namespace kvscope::cli {
namespace {

AnalysisCard overlap_card() {
  AnalysisCard card;
  card.kind = "overlap";
  card.summary = "which keys methods share, and who keeps what the others drop";
  card.about =
      "Replays the methods and compares their lists of the keys before each call, two by two at "
      "the same budget, and each with all the others together: shared keys / keys of either "
      "(Jaccard), and the attention on keys that both keep, or one alone. --out has every head.";
  card.columns = {{"jaccard", "Jaccard"},
                  {"shared_mass", "shared mass"},
                  {"first_mass", "first alone"},
                  {"second_mass", "second alone"}};
  card.headline =
      "of their keys before a call two sides share {jaccard:%} on average; of a row's attention "
      "{shared_mass:%} lies on keys before the call that both keep, {first_mass:%} and "
      "{second_mass:%} on those that one alone keeps";
  return card;
}

class AnalyzeOverlap final : public AnalyzeOne<OverlapOptions> {
 public:
  AnalyzeOverlap() : AnalyzeOne(analyze_overlap, overlap_card()) {}

 private:
  std::string more_text(const Json& summary) const override {
    TextTable table(
        {"first", "second", "budget", "Jaccard", "shared mass", "first alone", "second alone"});
    for (const Json& one : summary["couples"]) {
      std::vector<std::string> cells = {one["first"], one["second"], "-"};
      if (one["budget"].is_string()) cells.back() = one["budget"];
      for (const ReportColumn& column : kind_card().columns)
        cells.push_back(number_cell(one, column.key, 3));
      table.add_row(std::move(cells));
    }
    std::string text = "\n" + table.text();
    for (const Json& sentence : summary["skipped"])
      text += fmt::format("left out: {}\n", sentence.get<std::string>());
    return text;
  }
};

}  // namespace

KVSCOPE_COMMAND(212, AnalyzeOverlap)

}  // namespace kvscope::cli

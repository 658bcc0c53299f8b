// kvscope simulate speculative: draft and verify, densely or under a selector.
#include "analysis/simulate/speculative.hpp"

#include <cmath>

#include "analysis/cli/kit.hpp"
#include "analysis/cli/simulate_base.hpp"

namespace kvscope::cli {
namespace {

class SimulateSpeculative final : public SimulateCommand {
 public:
  CommandCard card() const override {
    return {"simulate speculative",
            "speculative decoding with dense or sparse verification",
            "A draft proposes --gamma tokens greedily, the verifier checks them in one pass under "
            "the selector (full: densely) and keeps the prefix it agrees with. Row \"greedy\" is "
            "the verifier alone; dense verification gives its tokens exactly, sparse verification "
            "may not, and \"first difference\" says where. Seconds are measured; everything else "
            "is the same in every run.",
            {{"kvscope simulate speculative --selector full,specattn --budget p=0.95,0.97,0.99 "
              "--gamma 4",
              "dense and sparse verification against plain decoding"}}};
  }

 protected:
  void declare_task(OptionSet& options) override {
    options.fields(task_);
    options.add("gamma", "LIST", "drafts per verification; several as 1,2,4,8", gammas_);
  }
  std::vector<Phase> phases() const override { return {Phase::verify}; }
  void check_task() const override { parse_counts(gammas_, "gamma"); }
  bool needs_draft() const override { return true; }
  std::vector<MethodSpec> default_selectors() const override { return {"full"}; }
  std::unique_ptr<SimulationTask> make_task(const SimulationSetup& setup) const override {
    return make_speculative_task(setup, task_, parse_counts(gammas_, "gamma"));
  }
  std::string summary_table(const SimulationResult& result) const override {
    TextTable table({"method", "gamma", "accepted", "95 %", "tokens/pass", "KV reduction",
                     "same as dense", "first difference", "tokens/s", "draft", "selection",
                     "attention", "rest"});
    for (const ColumnTable::Row& row : result.table.rows) {
      const auto value = [&](std::string_view column) {
        return cell_of(result.table, row, column);
      };
      const auto number = [&](std::string_view column) { return number_text(value(column), 3); };
      const auto seconds = [&](std::string_view column) {
        return std::isnan(value(column)) ? "-" : seconds_text(value(column));
      };
      table.add_row({method_of(result.table, row), number("gamma"), number("acceptance_length"),
                     std::isnan(value("acceptance_length_low"))
                         ? "-"
                         : fmt::format("[{:.2f}, {:.2f}]", value("acceptance_length_low"),
                                       value("acceptance_length_high")),
                     number("tokens_per_pass"), percent_text(value("kv_reduction")),
                     percent_text(value("same_as_dense")), number("first_difference"),
                     number("tokens_per_second"), seconds("draft_seconds"),
                     seconds("selection_seconds"), seconds("attention_seconds"),
                     seconds("rest_seconds")});
    }
    return table.text();
  }

 private:
  SpeculativeOptions task_;
  std::string gammas_ = "4";
};

}  // namespace

KVSCOPE_COMMAND(460, SimulateSpeculative)

}  // namespace kvscope::cli

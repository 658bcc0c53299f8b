// kvscope simulate speculative: draft and verify, densely or under a selector.
#include "analysis/simulate/speculative.hpp"

#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/filled_text.hpp"
#include "analysis/cli/frame/list_options.hpp"
#include "analysis/cli/runs/simulate_base.hpp"
#include "core/base/json.hpp"

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
  void check_task() const override { counts_of(gammas_, "gamma"); }
  bool needs_draft() const override { return true; }
  std::vector<MethodSpec> default_selectors() const override { return {"full"}; }
  std::unique_ptr<SimulationTask> make_task(const SimulationSetup& setup) const override {
    return make_speculative_task(setup, task_, counts_of(gammas_, "gamma"));
  }
  std::string summary_table(const Json& rows) const override {
    return filled_table(rows,
                        {{"method", "{method}"},
                         {"gamma", "{gamma:3}"},
                         {"accepted", "{acceptance_length:3}"},
                         {"95 %", "[{acceptance_length_low:.2f}, {acceptance_length_high:.2f}]"},
                         {"tokens/pass", "{tokens_per_pass:3}"},
                         {"KV reduction", "{kv_reduction:%}"},
                         {"same as dense", "{same_as_dense:%}"},
                         {"earliest difference", "{first_difference:3}"},
                         {"tokens/s", "{tokens_per_second:3}"},
                         {"draft", "{draft_seconds:s}"},
                         {"selection", "{selection_seconds:s}"},
                         {"attention", "{attention_seconds:s}"},
                         {"rest", "{rest_seconds:s}"}});
  }

 private:
  SpeculativeOptions task_;
  std::string gammas_ = "4";
};

}  // namespace

KVSCOPE_COMMAND(460, SimulateSpeculative)

}  // namespace kvscope::cli

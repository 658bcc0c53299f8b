// kvscope simulate perplexity: the model's perplexity with a selector inside its attention.
#include "analysis/simulate/perplexity.hpp"

#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/filled_text.hpp"
#include "analysis/cli/runs/simulate_base.hpp"
#include "core/base/json.hpp"

namespace kvscope::cli {
namespace {

class SimulatePerplexity final : public SimulateCommand {
 public:
  CommandCard card() const override {
    return {
        "simulate perplexity",
        "perplexity with a selector inside the model's attention",
        "Teacher-forced decoding after a dense prefill (SpecAttn's protocol; --prefill 0 is "
        "Quest's), or chunked prefill (--mode prefill). Every layer sees what the sparse layers "
        "before it made, so errors compound. The KV reduction is 1 - keys attended to / keys "
        "visible, a ratio of totals over the layers where the method answers. Methods that need "
        "a draft verify --gamma tokens at a time; specattn's layer map is measured on the end "
        "of the text unless the method names one. Intervals are bootstraps over windows and "
        "blocks of 64 tokens within them, paired with the dense model's for the increase; with "
        "several --text, texts are drawn first. One window speaks for its own stretch of text "
        "alone, one text for itself.",
        {{"kvscope simulate perplexity --selector full,streamingllm,quest,specattn --budget "
          "tokens=256,p=0.95,0.97,0.99 --dense-layers 2",
          "the rows of SpecAttn's Table 1"},
         {"kvscope simulate perplexity --mode prefill --prefill 0 --selector full,quoka --budget "
          "ratio=0.25 --out ppl.h5",
          "chunked prefill; the cumulative curves go to the file"},
         {"kvscope simulate perplexity --text a.txt --text b.txt --text c.txt --selector "
          "full,quest --match density=0.1",
          "a tenth of the keys by measure, over three texts"}}};
  }

 protected:
  void declare_task(OptionSet& options) override {
    options.fields(task_);
    options.add("gamma", "N", "tokens per verification for methods that need a draft",
                options_.gamma);
  }
  std::vector<Phase> phases() const override {
    return {task_.mode == PerplexityMode::prefill ? Phase::prefill : Phase::decode};
  }
  std::unique_ptr<SimulationTask> make_task(const SimulationSetup& setup) const override {
    return make_perplexity_task(setup, task_);
  }
  std::string summary_table(const Json& rows) const override {
    return filled_table(rows,
                        {{"method", "{method}"},
                         {"perplexity", "{perplexity:.3f}"},
                         {"95 %", "[{perplexity_low:.2f}, {perplexity_high:.2f}]"},
                         {"rel. increase", "{relative_increase:+%}"},
                         {"95 %", "[{relative_increase_low:+%}, {relative_increase_high:+%}]"},
                         {"KV reduction", "{kv_reduction:%}"},
                         {"of KV heads", "{kv_union_reduction:%}"}});
  }

 private:
  PerplexityOptions task_;
};

}  // namespace

KVSCOPE_COMMAND(410, SimulatePerplexity)

}  // namespace kvscope::cli

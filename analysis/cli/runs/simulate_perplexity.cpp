// kvscope simulate perplexity: the model's perplexity with a selector inside its attention.
#include "analysis/simulate/perplexity.hpp"

#include <fmt/format.h>

#include <cmath>

#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/text_table.hpp"
#include "analysis/cli/runs/simulate_base.hpp"
#include "core/base/number_text.hpp"

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
  std::string summary_table(const SimulationResult& result) const override {
    TextTable table(
        {"method", "perplexity", "95 %", "rel. increase", "95 %", "KV reduction", "of KV heads"});
    for (const ColumnTable::Row& row : result.table.rows) {
      const auto value = [&](std::string_view column) {
        return cell_of(result.table, row, column);
      };
      const double increase = value("relative_increase");
      table.add_row(
          {method_of(result.table, row), fmt::format("{:.3f}", value("perplexity")),
           std::isnan(value("perplexity_low"))
               ? "-"
               : fmt::format("[{:.2f}, {:.2f}]", value("perplexity_low"), value("perplexity_high")),
           std::isnan(increase) ? "-" : fmt::format("{:+.2f} %", 100.0 * increase),
           std::isnan(value("relative_increase_low"))
               ? "-"
               : fmt::format("[{:+.2f}, {:+.2f}]", 100.0 * value("relative_increase_low"),
                             100.0 * value("relative_increase_high")),
           percent_text(value("kv_reduction")), percent_text(value("kv_union_reduction"))});
    }
    return table.text();
  }

 private:
  PerplexityOptions task_;
};

}  // namespace

KVSCOPE_COMMAND(410, SimulatePerplexity)

}  // namespace kvscope::cli

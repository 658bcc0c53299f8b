// kvscope simulate chain: thousands of decoded tokens whose right continuation is known.
#include "analysis/cli/kit.hpp"
#include "analysis/cli/simulate_base.hpp"
#include "analysis/simulate/chains.hpp"
#include "core/base/lists.hpp"

namespace kvscope::cli {
namespace {

class SimulateChain final : public SimulateCommand {
 public:
  CommandCard card() const override {
    return {
        "simulate chain",
        "long decoding of chains whose next token is known: copy, sum, rewrite",
        "The prompt goes in densely and holds a chain's beginning; every further token is "
        "decoded under the selector from what it wrote itself, so that errors pile up in the "
        "kept cache. Accuracy is the share of the steps before the first error. \"full\" always "
        "takes part: what it cannot continue is marked.",
        {{"kvscope simulate chain --kinds copy --steps 8192 --selector quest,streamingllm --budget "
          "256",
          "eight thousand steps of copying"}}};
  }

 protected:
  bool takes_texts() const override { return false; }
  void declare_task(OptionSet& options) override {
    options.add("kinds", "LIST", fmt::format("of {}", fmt::join(EnumNames<ChainKind>::value, ", ")),
                kinds_);
    options.fields(task_);
  }
  std::vector<Phase> phases() const override { return {Phase::decode}; }
  bool adds_full() const override { return true; }
  bool shows_prompts() const override { return true; }
  void check_task() const override { parse_kinds(); }
  std::unique_ptr<SimulationTask> make_task(const SimulationSetup& setup) const override {
    ChainOptions options = task_;
    options.kinds = parse_kinds();
    return make_chain_task(setup, options);
  }
  std::string summary_table(const SimulationResult& result) const override {
    TextTable table({"kind", "method", "steps right", "of", "accuracy", "95 %", "same as dense",
                     "first difference", "KV reduction", "dense solves it"});
    for (const ColumnTable::Row& row : result.table.rows) {
      const auto value = [&](std::string_view column) {
        return cell_of(result.table, row, column);
      };
      table.add_row(
          {row.texts[4], method_of(result.table, row), number_text(value("steps_right"), 5),
           number_text(value("steps"), 9), percent_text(value("accuracy")),
           fmt::format("[{:.0f}, {:.0f}]", 100.0 * value("accuracy_low"),
                       100.0 * value("accuracy_high")),
           percent_text(value("same_as_dense")), number_text(value("first_difference"), 9),
           percent_text(value("kv_reduction")), row.texts[5]});
    }
    return table.text();
  }

 private:
  std::vector<ChainKind> parse_kinds() const {
    std::vector<ChainKind> kinds;
    for (const std::string& word : split_words(kinds_, ',')) {
      ChainKind kind{};
      parse_field(Field{"--kinds", ""}, word, kind);
      if (std::ranges::find(kinds, kind) != kinds.end())
        throw UsageError("--kinds: {} is given twice", enum_name(kind));
      kinds.push_back(kind);
    }
    return kinds;
  }

  ChainOptions task_;
  std::string kinds_ = "copy,running_sum,rewriting";
};

}  // namespace

KVSCOPE_COMMAND(450, SimulateChain)

}  // namespace kvscope::cli

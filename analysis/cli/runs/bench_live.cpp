// kvscope bench live: time to the first token, and of decode steps behind it, with a selector in
// the running model, beside the plain model, by prompt length.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "analysis/base/number_formats.hpp"
#include "analysis/base/replay_pairs.hpp"
#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/filled_text.hpp"
#include "analysis/cli/frame/list_options.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/runs/bench_live_run.hpp"
#include "analysis/cli/runs/bench_report.hpp"
#include "analysis/cli/runs/simulate_base.hpp"
#include "core/base/json.hpp"
#include "core/selectors/spec_lists.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

namespace {

class BenchLive final : public BenchReportCommand {
 public:
  CommandCard card() const override {
    return {
        "bench live",
        "time to the first token and of decode steps, under a selector and dense",
        "The prompt goes in by chunks and the first token's logits are computed: once with the "
        "plain model, once for every selector and budget, in turn, so that all meet the same "
        "machine; --steps decodes on behind it. Attention is the time from queries, keys and "
        "values to the heads' outputs, selection the method's own work. Ratios are dense over "
        "sparse, turn by turn, medians over the repeats. The embedded book is repeated if it is "
        "too short.",
        {{"kvscope bench live --selector quoka --budget 1024 --lengths 4096,8192,16384",
          "how much sooner the first token comes"},
         {"kvscope bench live --lengths 8000 --steps 64 --json",
          "the plain model alone: prefill and decode steps"}}};
  }

 protected:
  void declare_bench(OptionSet& options) override {
    options.add("model", "MODEL", kModelHelp, model_).kind = ValueKind::model;
    options.add("selector", "NAME[,NAME]",
                "methods that are defined for prefill [the plain model alone]", selectors_);
    options.add("budget", "LIST", "as in kvscope simulate", budgets_);
    options.add("lengths", "LIST", "prompt lengths in tokens", lengths_);
    options.add("chunk", "N", "B_CP: tokens per prefill call", chunk_, at_least(1));
    options.add("steps", "N", "decode steps behind the prompt", n_steps_, in(0, 1'000'000));
    options.add("repeat", "N", "measured turns, after a short one that is not", n_repeats_,
                in(1, 1000));
    engine_.declare(options);
  }

  void check_usage() const override { counts_of(lengths_, "lengths"); }

  Json measure(Working& means) const override {
    const std::vector<Index> lengths = counts_of(lengths_, "lengths");
    PairPlan plan;
    if (!selectors_.empty())
      plan = plan_pairs(
          selectors_of(selectors_),
          split_budgets(budgets_.empty() ? std::vector<std::string>{"tokens=1024"} : budgets_),
          {Phase::prefill}, /*without_draft=*/std::nullopt, "bench live");
    for (const std::string& sentence : plan.skipped) note("kvscope: left out: {}", sentence);
    const fs::path dir = model_dir(model_);
    engine_.check();
    const Transformer model = load_transformer(dir, engine_);
    for (const ReplayPair& pair : plan.pairs) {
      if (engine_.is_on_gpu()) note_host_choice(pair.selector, pair.budget);
    }
    const Index longest = *std::ranges::max_element(lengths);
    if (longest + n_steps_ > model.config().max_positions) {
      throw UsageError("{} tokens exceed the model's context of {} positions", longest + n_steps_,
                       model.config().max_positions);
    }
    const std::vector<TokenId> text = book_tokens(model.config(), longest);
    Json report = {{"bench", "live"},
                   {"model", model_name(dir)},
                   {"model_hash", hash_of_model(dir, model)},
                   {"n_parameters", model.config().n_parameters()},
                   {"chunk", chunk_},
                   {"steps", n_steps_},
                   {"repeat", n_repeats_},
                   {"threads", means.pool.n_threads()},
                   {"matmul", engine_.matmul_name()},
                   {"kv_dtype", engine_.kv_dtype},
                   {"device", engine_.device},
                   {"rows", Json::array()}};
    // Run 0 is the plain model.
    const auto once = [&](std::size_t run, Index length) {
      return time_live(model, run == 0 ? nullptr : &plan.pairs[run - 1],
                       std::span(text).first(static_cast<std::size_t>(length)), chunk_, n_steps_,
                       means.pool, means.stop);
    };
    const std::size_t n_runs = plan.pairs.size() + 1;
    for (std::size_t run = 0; run < n_runs; ++run)  // pages the weights in
      once(run, std::min<Index>(longest, 512));
    for (const Index length : lengths) {
      std::vector<std::vector<LiveSeconds>> turns(n_runs);  // [run][repeat]
      take_turns({fmt::format("{} tokens", length), n_repeats_, /*has_warm_up=*/false, length},
                 n_runs, means,
                 [&](std::size_t run, bool) { turns[run].push_back(once(run, length)); });
      for (std::size_t run = 0; run < n_runs; ++run) {
        report["rows"].push_back(
            row_of(run == 0 ? nullptr : &plan.pairs[run - 1], length, turns[run], turns[0]));
        NumberFormats::of(report).add_to(report["rows"].back());
      }
    }
    return report;
  }

  std::string describe(const Json& report) const override {
    return filled_in("{model} in chunks of {chunk:9}, {threads} threads on {cpu}\n", report) +
           NumberFormats::of(report).line() +
           filled_table(report.at("rows"), {{"length", "{length:9}"},
                                            {"method", "{method}"},
                                            {"first token", "{ttft_seconds:s}"},
                                            {"attention", "{attention_seconds:s}"},
                                            {"selection", "{selection_seconds:s}"},
                                            {"a step", "{step_seconds:s}?"},
                                            {"TTFT ratio", "{ttft_ratio:.2f}"},
                                            {"attention ratio", "{attention_ratio:.2f}"}});
  }

 private:
  /// pair null: dense, which figures know as the method "full".
  Json row_of(const ReplayPair* pair, Index length, const std::vector<LiveSeconds>& own,
              const std::vector<LiveSeconds>& dense) const {
    std::vector<double> steps, total, attention, selection, ttft_ratio, attention_ratio;
    for (std::size_t i = 0; i < own.size(); ++i) {
      total.push_back(own[i].total);
      steps.insert(steps.end(), own[i].steps.begin(), own[i].steps.end());
      attention.push_back(own[i].attention);
      selection.push_back(own[i].selection);
      ttft_ratio.push_back(dense[i].total / own[i].total);
      attention_ratio.push_back(dense[i].attention / (own[i].attention + own[i].selection));
    }
    const bool has_budget = pair != nullptr && pair->budget.has_value();
    Json row = {{"method", pair == nullptr ? "dense" : pair_label(*pair)},
                {"selector", pair == nullptr ? "full" : pair->selector.text()},
                {"budget", has_budget ? Json(pair->budget->value) : Json(nullptr)},
                {"budget_kind", pair == nullptr ? "none" : kind_of(pair->budget)},
                {"length", length},
                {"repeat", own.size()}};
    add_spread(row, "seconds", total);
    row["ttft_seconds"] = median(total);
    row["step_seconds"] = json_number(median(steps));  // low and high: of nine in ten steps
    row["step_seconds_low"] = json_number(quantile(steps, 0.05));
    row["step_seconds_high"] = json_number(quantile(steps, 0.95));
    row["attention_seconds"] = median(attention);
    row["selection_seconds"] = median(selection);
    add_spread(row, "ttft_ratio", ttft_ratio);
    add_spread(row, "attention_ratio", attention_ratio);
    return row;
  }

  std::string model_ = "verifier";
  std::vector<std::string> selectors_;
  std::vector<std::string> budgets_;
  std::string lengths_ = "4096,8192,16384";
  Index chunk_ = 128;
  Index n_repeats_ = 3;
  Index n_steps_ = 0;
  EngineOptions engine_;
};

}  // namespace

KVSCOPE_COMMAND(365, BenchLive)

}  // namespace kvscope::cli

// kvscope bench select: how long selectors take to choose keys, beside dense attention of the same
// call.
#include <fmt/format.h>

#include "analysis/base/number_formats.hpp"
#include "analysis/base/statistics.hpp"
#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/filled_text.hpp"
#include "analysis/cli/frame/list_options.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/frame/stopwatch.hpp"
#include "analysis/cli/runs/bench_report.hpp"
#include "analysis/cli/runs/bench_select_run.hpp"
#include "core/base/cpu.hpp"
#include "core/base/json.hpp"
#include "core/base/number_text.hpp"
#include "core/model/kv_cache.hpp"
#include "core/selectors/spec_lists.hpp"

namespace kvscope::cli {

/// Which calls are measured.
enum class BenchPhase { both, prefill, decode };

namespace {

constexpr double kMostWorkloadBytes = 16.0 * 1024 * 1024 * 1024;

/// One method in one call, as a row; dense attention is said in every row of its call.
Json row_of(const SelectBenchRow& row, const SelectBenchCase& one) {
  const std::vector<double>& dense = one.dense_seconds;
  std::vector<double> ratios;
  std::vector<double> speedups;
  for (std::size_t i = 0; i < dense.size(); ++i) {
    ratios.push_back(row.seconds[i] / dense[i]);
    if (!row.attend_seconds.empty())
      speedups.push_back(dense[i] / (row.seconds[i] + row.attend_seconds[i]));
  }
  Json json = {{"phase", std::string(name_of(one.phase))},
               {"tokens", one.n_tokens},
               {"queries", one.n_tok},
               {"dense_seconds_median", median(dense)},
               {"dense_gflops_per_second", one.dense_flops / median(dense) / 1e9},
               {"selector", row.selector},
               {"select_over_dense", median(ratios)}};
  add_spread(json, "speedup", speedups);
  json.update({{"attend_seconds_median", json_number(median(row.attend_seconds))},
               {"flops_over_dense", row.work.score_flops / one.dense_flops},
               {"append_over_dense", row.append_seconds / median(dense)},
               {"seconds_median", median(row.seconds)},
               {"append_seconds", row.append_seconds},
               {"kept", row.kept},
               {"budget_kind", kind_of(row.budget)},
               {"budget", row.budget ? Json(row.budget->value) : Json(nullptr)}});
  return json;
}

/// Methods times calls from which on the work is announced: nothing is seen of it in a pipe.
constexpr std::size_t kManyCases = 20;

class BenchSelect final : public BenchReportCommand {
 public:
  CommandCard card() const override {
    return {
        "bench select",
        "time of choosing keys, against dense attention of the same call",
        "Made-up queries, keys and values; dense attention and all selectors take turns, and "
        "the median of the ratios counts. Selectors and attention get the same threads. "
        "\"append\" is the work of building what a method keeps about all keys, once, as a "
        "ratio too; it is not in \"select\". Methods that evict are asked with every key alive, "
        "and voting and evicting count as selecting. Calibration is not timed.",
        {{"kvscope bench select", "all methods at 4k, 16k and 32k keys"},
         {"kvscope bench select --selector quoka,quest --lengths 32768 --phase decode --json",
          "two methods, one decode step over 32k keys"}}};
  }

 protected:
  void declare_bench(OptionSet& options) override {
    options.add("selector", "LIST", "methods, as in kvscope sweep; repeatable [all]", selectors_);
    options.add("budget", "LIST",
                "each method takes the first one of a kind it understands; repeatable "
                "[tokens=1024,p=0.95]",
                budgets_);
    options.add("lengths", "LIST", "context lengths, the call's own tokens included", lengths_);
    options.add("phase", "WORD", "a prefill chunk, a decode step, or both", phase_);
    options.add("chunk", "N", "queries of the prefill call", chunk_, in(1, 1 << 20));
    options.add("n-q", "N", "query heads", shape_.n_q, in(1, 1024));
    options.add("n-kv", "N", "KV heads", shape_.n_kv, in(1, 1024));
    options.add("d-head", "N", "channels of a head", shape_.d_head, in(1, 1024));
    options.add("repeat", "N", "measured rounds, after one that is not", n_repeats_, in(1, 1000));
    options.add("seed", "N", "seed of the numbers", shape_.seed);
    options.add("precision", "WORD", "of scores: f32 as in live runs, or f64 as in replay",
                precision_);
    options.add("kv-dtype", "WORD",
                "keys and values of attention: f32 or bf16; scores are computed in f32", kv_dtype_);
    work_.threads_help = "threads of selecting and attending [1]";
    work_.threads = 1;
  }

  void check_usage() const override {
    ascending_lengths();
    methods();
  }

  Json measure(const BenchMeans& means) const override {
    const BudgetedMethods chosen = methods();
    SelectBenchPlan plan{.methods = chosen.methods};
    if (phase_ == BenchPhase::prefill) plan.phases = {Phase::prefill};
    if (phase_ == BenchPhase::decode) plan.phases = {Phase::decode};
    plan.lengths = ascending_lengths();
    plan.shape = shape_;
    plan.shape.n_queries = chunk_;
    plan.n_repeats = n_repeats_;
    plan.precision = precision_;
    plan.kv_dtype = kv_dtype_from_name(kv_dtype_);
    const std::size_t n_calls = plan.phases.size() * plan.lengths.size();
    if (plan.methods.size() * n_calls > kManyCases)
      note(
          "kvscope: {} methods, each {} times in {} calls (at {} keys): minutes; --selector, "
          "--lengths and --repeat shorten it, --progress plain says how far it is",
          plan.methods.size(), n_repeats_ + 1, n_calls, fmt::join(plan.lengths, ", "));
    Json rows = Json::array();
    for (const SelectBenchCase& one : run_select_bench(plan, means)) {
      for (const SelectBenchRow& row : one.rows) rows.push_back(row_of(row, one));
    }
    return {{"bench", "select"},
            {"n_q", shape_.n_q},
            {"n_kv", shape_.n_kv},
            {"d_head", shape_.d_head},
            {"repeat", n_repeats_},
            {"seed", shape_.seed},
            {"threads", means.pool.n_threads()},
            {"precision", std::string(enum_name(precision_))},
            {"kv_dtype", kv_dtype_},
            {"vector_target", vector_targets().empty() ? "" : vector_targets().front()},
            {"left_out", chosen.left_out},
            {"rows", rows}};
  }

 private:
  /// Throws UsageError if none is left.
  BudgetedMethods methods() const {
    BudgetedMethods chosen =
        with_budgets(selectors_.empty() ? all_methods_of_registry() : selectors_of(selectors_),
                     budgets_.empty() ? default_bench_budgets() : split_budgets(budgets_));
    if (chosen.methods.empty())
      throw UsageError("--selector: nothing is left to measure: {}",
                       fmt::join(chosen.left_out, "; "));
    return chosen;
  }

  /// Context lengths, ascending.
  std::vector<Index> ascending_lengths() const {
    if (shape_.n_q % shape_.n_kv != 0) {
      throw UsageError("--n-q: expected a multiple of the {} KV heads, found {}", shape_.n_kv,
                       shape_.n_q);
    }
    const std::vector<Index> lengths = index_list_of(lengths_, "lengths");
    const Index shortest = phase_ == BenchPhase::decode ? 2 : chunk_ + 1;
    if (lengths.front() < shortest) {
      throw UsageError(
          "--lengths: expected at least {}, so that there are keys before the call, found {}",
          shortest, lengths.front());
    }
    const double n_bytes = 4.0 * static_cast<double>(shape_.d_head) *
                           (2.0 * static_cast<double>(shape_.n_kv * lengths.back()) +
                            static_cast<double>(shape_.n_q * chunk_));
    if (n_bytes > kMostWorkloadBytes) {
      throw UsageError("--lengths: {} tokens of this shape take {}, more than {}", lengths.back(),
                       bytes_text(n_bytes), bytes_text(kMostWorkloadBytes));
    }
    return lengths;
  }

  std::string describe(const Json& report) const override {
    for (const auto& sentence : report.at("left_out"))
      note("kvscope: left out: {}", sentence.get<std::string>());
    std::string out =
        filled_in(
            "time of selecting, dense attention of the same call = 1 (speedup: of selecting and "
            "attending together): {n_q} query and {n_kv} KV heads of {d_head} channels, {threads} "
            "threads on {cpu}\n",
            report) +
        NumberFormats::of(report).line();
    const auto is_of = [](const Json& a, const Json& b) {
      return a.at("phase") == b.at("phase") && a.at("tokens") == b.at("tokens");
    };
    const Json& rows = report.at("rows");
    for (auto row = rows.begin(); row != rows.end();) {
      Json call = Json::array();
      for (const Json& first = *row; row != rows.end() && is_of(first, *row); ++row)
        call.push_back(*row);
      out += filled_in(
                 "\n{phase}, {tokens:9} keys, {queries:9} queries: dense attention "
                 "{dense_seconds_median:s} ({dense_gflops_per_second:.1f} GFLOP/s)\n",
                 call.front()) +
             filled_table(call, {{"selector", "{selector}"},
                                 {"budget", "{budget_kind}={budget:9}?"},
                                 {"select", "{select_over_dense:3}"},
                                 {"time", "{seconds_median:ms}"},
                                 {"append", "{append_over_dense:3}"},
                                 {"FLOPs", "{flops_over_dense:3}"},
                                 {"kept", "{kept:6}"},
                                 {"speedup", "{speedup:3}?"}});
    }
    return out;
  }

  std::string kv_dtype_ = "f32";
  std::vector<std::string> selectors_;
  std::vector<std::string> budgets_;
  std::string lengths_ = "4096,16384,32768";
  BenchPhase phase_ = BenchPhase::both;
  ScorePrecision precision_ = ScorePrecision::f32;
  Index chunk_ = 128;
  WorkloadShape shape_;
  Index n_repeats_ = 5;
};

}  // namespace

KVSCOPE_COMMAND(360, BenchSelect)

}  // namespace kvscope::cli

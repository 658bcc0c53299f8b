// kvscope bench select: how long selectors take to choose keys, beside dense attention of the same
// call.
#include <algorithm>
#include <cmath>

#include "analysis/cli/bench_text.hpp"
#include "analysis/cli/bench_workload.hpp"
#include "analysis/cli/command.hpp"
#include "analysis/cli/common_options.hpp"
#include "analysis/cli/list_options.hpp"
#include "analysis/cli/output.hpp"
#include "analysis/cli/signals.hpp"
#include "analysis/cli/stopwatch.hpp"
#include "analysis/cli/text_table.hpp"
#include "analysis/cost/work.hpp"
#include "core/attention/dense_attention.hpp"
#include "core/attention/sparse_attention.hpp"
#include "core/base/cpu.hpp"
#include "core/base/error.hpp"
#include "core/base/number_text.hpp"
#include "core/base/version.hpp"
#include "core/model/kv_cache.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/score_engine.hpp"
#include "core/selectors/spec_lists.hpp"
#include "core/sim/attended.hpp"
#include "core/tensor/lane_kernels.hpp"

namespace kvscope::cli {

/// Which calls are measured.
enum class BenchPhase { both, prefill, decode };

}  // namespace kvscope::cli

template <>
struct kvscope::EnumNames<kvscope::cli::BenchPhase> {
  static constexpr std::array<std::string_view, 3> value = {"both", "prefill", "decode"};
};

namespace kvscope::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr Index kCalibrationTokens = 1024;
constexpr Index kLayers = 32;  // of the model that the selectors are told about
constexpr double kMostWorkloadBytes = 16.0 * 1024 * 1024 * 1024;

/// One forward call of the workload: the last n_tok of n_tokens positions.
struct BenchCall {
  const Workload& data;
  Phase phase = Phase::prefill;
  Index n_tokens = 0;
  Index n_tok = 0;
  Index pos_begin() const { return n_tokens - n_tok; }
  float score_scale() const { return 1.0f / std::sqrt(static_cast<float>(data.q.dim(2))); }
  TensorView<const float> q() const { return data.q.view().range(1, 0, n_tok); }
  TensorView<const float> k() const { return data.k.view().range(1, 0, n_tokens); }
  TensorView<const float> v() const { return data.v.view().range(1, 0, n_tokens); }
  AttentionQuestion question() const {
    AttentionQuestion question;
    question.pos_begin = pos_begin();
    question.n_tok = n_tok;
    question.score_scale = score_scale();
    question.q = q();
    question.k = k();
    question.v = v();
    return question;
  }
};

/// Dense attention of a call, with room for its answer.
class DenseRun {
 public:
  explicit DenseRun(const BenchCall& call)
      : out_({call.data.q.dim(0), call.n_tok, call.data.q.dim(2)}),
        lse_({call.data.q.dim(0), call.n_tok}),
        call_(call.question()),
        halves_(call.data.halves(call.n_tokens)) {}
  void run(ThreadPool& pool) { attend_dense(call_, {out_.view(), lse_.view()}, pool, halves_); }
  /// Multiplications and additions of q.k and of the weighted sum of values.
  double flops() const {
    const double n_rows = static_cast<double>(call_.n_tok);
    const double n_pairs =
        n_rows * static_cast<double>(call_.pos_begin) + n_rows * (n_rows + 1) / 2;
    return 4.0 * static_cast<double>(call_.q.dim(0) * call_.q.dim(2)) * n_pairs;
  }

 private:
  Tensor<float> out_;
  Tensor<float> lse_;
  AttentionQuestion call_;
  HalfRows halves_;
};

/// Attention of a call over a selection's lists, as in a live run.
class ListRun {
 public:
  explicit ListRun(const BenchCall& call)
      : lanes_(call.n_tok > kNarrowLanes ? kWideLanes : kNarrowLanes),
        out_({(call.n_tok + lanes_ - 1) / lanes_, call.data.q.dim(0) * call.data.q.dim(2), lanes_}),
        lse_({call.data.q.dim(0), call.n_tok}),
        question_(call.question()),
        halves_(call.data.halves(call.n_tokens)) {}
  void run(const Selection& selection, ThreadPool& pool) {
    attend_lists(question_, selection, {lanes_, out_.data(), lse_.view()}, pool, halves_, &memory_);
  }

 private:
  Index lanes_;
  Tensor<float> out_;
  Tensor<float> lse_;
  AttentionQuestion question_;
  HalfRows halves_;
  ListMemory memory_;
};

/// One selector with its budget in one call. Methods that remember calls (votes, evictions) start
/// afresh for every question, since a second one would find the cache that the first one left.
class SelectorBench {
 public:
  SelectorBench(MethodSpec spec, const Budget& budget, const BenchCall& call,
                ScorePrecision precision, ThreadPool& pool)
      : spec_(std::move(spec)),
        bench_call_(call),
        pool_(&pool),
        precision_(precision),
        alive_(call.data.k.dim(0)) {
    alive_.append(call.n_tokens);
    selector_ = spec_.make();
    caps_ = spec_.caps();
    remembers_ = caps_.permanent || caps_.needs_probs;
    call_.layer = caps_.dense_layers;
    call_.phase = call.phase;
    call_.pos_begin = call.pos_begin();
    call_.n_tok = call.n_tok;
    call_.score_scale = call.score_scale();
    call_.q = call.q();
    call_.k = call.k();
    call_.v = call.v();
    call_.budget = budget;
    first_seconds_ = prepare();
    if (!remembers_) first_seconds_ += ask();
  }

  /// Asks once more.
  void measure(bool counted) {
    if (remembers_) {
      selector_ = spec_.make();
      prepare();
    }
    const double seconds = ask();
    if (!counted) return;
    seconds_.push_back(seconds);
    if (selection_.is_dense) return;
    if (lists_ == nullptr) {
      lists_ = std::make_unique<ListRun>(bench_call_);
      lists_->run(selection_, *pool_);  // its memory, as a cache keeps it
    }
    attend_seconds_.push_back(seconds_of([&] { lists_->run(selection_, *pool_); }));
  }

  /// `dense`: seconds of dense attention in the same rounds.
  Json report(const std::vector<double>& dense, double dense_flops) const {
    std::vector<double> ratios;
    std::vector<double> speedups;
    for (std::size_t i = 0; i < dense.size(); ++i) {
      ratios.push_back(seconds_[i] / dense[i]);
      if (!attend_seconds_.empty())
        speedups.push_back(dense[i] / (seconds_[i] + attend_seconds_[i]));
    }
    // some methods build what they keep at the first question: it belongs to appending
    const double append =
        remembers_ ? first_seconds_ : std::max(first_seconds_ - median(seconds_), 0.0);
    SelectCall question = call_;
    question.alive = &alive_;
    const SelectCost cost = selector_->cost(question, selection_);
    double n_kept = static_cast<double>(selection_.keys().size());
    n_kept = selection_.is_dense ? static_cast<double>(bench_call_.n_tokens)
                                 : n_kept / static_cast<double>(selection_.n_lists());
    const bool has_budget = !caps_.budgets.empty();
    return {
        {"selector", spec_.text()},
        {"budget", has_budget ? Json(call_.budget.to_string()) : Json(nullptr)},
        {"select_over_dense", median(ratios)},
        {"speedup", speedups.empty() ? Json(nullptr) : Json(median(speedups))},
        {"attend_seconds_median", speedups.empty() ? Json(nullptr) : Json(median(attend_seconds_))},
        {"flops_over_dense", cost.score_flops / dense_flops},
        {"append_over_dense", append / median(dense)},
        {"seconds_median", median(seconds_)},
        {"append_seconds", append},
        {"kept", n_kept},
        {"work", work_json(measured_work(
                     selection_, cost, call_.q.dim(0), call_.k.dim(0), call_.q.dim(2),
                     {bench_call_.pos_begin(), bench_call_.n_tokens}, caps_.page_size))},
        {"seconds", seconds_}};
  }

 private:
  /// What kvscope cost --check predicts a time from.
  static Json work_json(const LayerWork& work) {
    return {{"is_dense", work.is_dense},       {"pairs", work.attend.pairs},
            {"keys", work.attend.keys},        {"runs", work.attend.runs},
            {"rows", work.attend.rows},        {"score_flops", work.score_flops},
            {"score_bytes", work.score_bytes}, {"ranked", work.ranked},
            {"summaries", work.summaries}};
  }

  /// A selector that has seen all keys; returns the seconds of telling it.
  double prepare() {
    if (caps_.needs_calibration) {
      const BenchText text(call_, kLayers, kCalibrationTokens);
      ThreadPool one(1);
      selector_->calibrate(text, std::span(&call_.layer, 1), pool_ != nullptr ? *pool_ : one);
    }
    AttentionShape shape;
    shape.n_layers = kLayers;
    shape.n_q = call_.q.dim(0);
    shape.n_kv = call_.k.dim(0);
    shape.d_head = call_.q.dim(2);
    shape.max_tokens = bench_call_.n_tokens;
    shape.score_scale = call_.score_scale;
    if (engine_ == nullptr)
      engine_ = std::make_unique<ScoreEngine>(precision_, pool_);  // lives as long as a sequence
    call_.engine = engine_.get();
    return seconds_of([&] {
      selector_->reset(shape);
      if (call_.pos_begin > 0) {
        selector_->on_append(call_.layer, 0, call_.k.range(1, 0, call_.pos_begin),
                             call_.v.range(1, 0, call_.pos_begin));
      }
      selector_->on_append(call_.layer, call_.pos_begin,
                           call_.k.range(1, call_.pos_begin, bench_call_.n_tokens),
                           call_.v.range(1, call_.pos_begin, bench_call_.n_tokens));
    });
  }

  double ask() {
    AliveMask alive = alive_;
    CrossLayerContext context;
    call_.alive = &alive;
    call_.context = &context;
    const double seconds = seconds_of([&] {
      selection_ = selector_->select(call_);
      if (caps_.needs_probs) selector_->observe(ListProbs(call_, selection_));
      if (caps_.permanent) selector_->evict(call_, alive);
    });
    call_.alive = nullptr;
    call_.context = nullptr;
    return seconds;
  }

  std::unique_ptr<ListRun> lists_;
  MethodSpec spec_;
  const BenchCall& bench_call_;
  ThreadPool* pool_;
  ScorePrecision precision_;
  std::unique_ptr<ScoreEngine> engine_;
  AliveMask alive_;  // everything
  std::unique_ptr<Selector> selector_;
  SelectorCaps caps_;
  bool remembers_ = false;
  SelectCall call_;
  Selection selection_;
  double first_seconds_ = 0.0;
  std::vector<double> seconds_;
  std::vector<double> attend_seconds_;
};

class BenchSelect final : public Command {
 public:
  std::string name() const override { return "bench select"; }
  std::string summary() const override {
    return "time of choosing keys, against dense attention of the same call";
  }
  std::string description() const override {
    return "Made-up queries, keys and values; dense attention and all selectors take turns, and "
           "the median of the ratios counts. Selectors and attention get the same "
           "threads. \"append\" is the work of building "
           "what a method keeps about all keys, once, as a ratio too; it is not in \"select\". "
           "Methods that evict are asked with every key alive, and voting and evicting count as "
           "selecting. Calibration is not timed.";
  }
  std::vector<Example> examples() const override {
    return {{"kvscope bench select", "all methods at 4k, 16k and 32k keys"},
            {"kvscope bench select --selector quoka,quest --tokens 32768 --phase decode --json",
             "two methods, one decode step over 32k keys"}};
  }

  void declare(OptionSet& options) override {
    options.add("selector", "LIST", "methods, as in kvscope sweep; repeatable [all]", selectors_);
    options.add("budget", "LIST",
                "each method takes the first one of a kind it understands; repeatable "
                "[tokens=1024,p=0.95]",
                budgets_);
    options.add("tokens", "LIST", "context lengths, the call's own tokens included", tokens_);
    options.add("phase", "WORD", "a prefill chunk, a decode step, or both", phase_);
    options.add("chunk", "N", "queries of the prefill call", chunk_);
    options.add("n-q", "N", "query heads", shape_.n_q);
    options.add("n-kv", "N", "KV heads", shape_.n_kv);
    options.add("d-head", "N", "channels of a head", shape_.d_head);
    options.add("repeat", "N", "measured rounds, after one that is not", n_repeats_);
    options.add("seed", "N", "seed of the numbers", shape_.seed);
    options.add("threads", "N", "threads of selecting and attending", n_threads_);
    options.add("precision", "WORD", "of scores: f32 as in live runs, or f64 as in replay",
                precision_);
    options.add("kv-dtype", "WORD",
                "keys and values of attention: f32 or bf16; scores are computed in f32", kv_dtype_);
    options.add("progress", "HOW",
                "what to show on standard error; auto is a bar on a terminal, else nothing",
                progress_);
    declare_json(options, json_);
  }

  int run(const OptionSet&, const std::string& command_line) override {
    const std::vector<Index> lengths = check_usage();
    const DType dtype = kv_dtype_from_name(kv_dtype_);
    const std::vector<Budget> budgets =
        budgets_.empty()
            ? std::vector<Budget>{{Budget::Kind::tokens, 1024.0}, {Budget::Kind::mass, 0.95}}
            : split_budgets(budgets_);
    const std::vector<MethodSpec> specs = chosen_selectors();
    std::vector<std::pair<MethodSpec, Budget>> pairs;
    Json left_out = Json::array();
    for (const MethodSpec& spec : specs) {
      const SelectorCaps& caps = spec.caps();
      const auto fits = std::find_if(budgets.begin(), budgets.end(), [&](const Budget& budget) {
        return std::find(caps.budgets.begin(), caps.budgets.end(), budget.kind) !=
               caps.budgets.end();
      });
      if (!caps.budgets.empty() && fits == budgets.end()) {
        left_out.push_back(fmt::format("{} takes none of the budgets", spec));
      } else if (caps.needs_draft) {
        left_out.push_back(fmt::format("{} needs a draft model", spec));
      } else {
        pairs.emplace_back(spec, caps.budgets.empty() ? Budget{} : *fits);
      }
    }
    if (pairs.empty()) {
      throw UsageError(fmt::format("--selector: nothing is left to measure: {}",
                                   fmt::join(left_out.get<std::vector<std::string>>(), "; ")));
    }

    const StopOnSignal stop;
    ThreadPool pool(n_threads_);
    ProgressReporter progress(progress_);
    shape_.n_tokens = lengths.back();
    shape_.n_queries = chunk_;
    Workload data(shape_, pool);
    if (dtype == DType::bf16) data.round_to_bf16();
    Json cases = Json::array();
    for (const Phase phase : {Phase::prefill, Phase::decode}) {
      if (phase_ == BenchPhase::prefill && phase != Phase::prefill) continue;
      if (phase_ == BenchPhase::decode && phase != Phase::decode) continue;
      for (const Index n_tokens : lengths) {
        const BenchCall call{data, phase, n_tokens, phase == Phase::decode ? 1 : chunk_};
        cases.push_back(measure(call, pairs, pool, progress.callback(), stop.token()));
      }
    }
    const Json report = {
        {"bench", "select"},
        {"n_q", shape_.n_q},
        {"n_kv", shape_.n_kv},
        {"d_head", shape_.d_head},
        {"repeat", n_repeats_},
        {"seed", shape_.seed},
        {"threads", n_threads_},
        {"precision", std::string(enum_name(precision_))},
        {"kv_dtype", kv_dtype_},
        {"cpu", cpu_name()},
        {"vector_target", vector_targets().empty() ? "" : vector_targets().front()},
        {"version", writer_name()},
        {"command_line", command_line},
        {"left_out", left_out},
        {"rows", rows_of(cases)},
        {"cases", cases}};  // rows as they were before 0.1.0, to be taken away
    if (json_) {
      print_json(report);
    } else {
      for (const auto& sentence : left_out)
        note(fmt::format("kvscope: left out: {}", sentence.get<std::string>()));
      print(describe(report));
    }
    return kOk;
  }

 private:
  /// Context lengths, ascending.
  std::vector<Index> check_usage() const {
    const auto check = [](const char* option, auto value, Index low, Index high) {
      if (static_cast<Index>(value) < low || static_cast<Index>(value) > high)
        throw UsageError(
            fmt::format("--{}: expected a value in [{}, {}], found {}", option, low, high, value));
    };
    check("chunk", chunk_, 1, 1 << 20);
    check("n-kv", shape_.n_kv, 1, 1024);
    check("n-q", shape_.n_q, 1, 1024);
    check("d-head", shape_.d_head, 1, 1024);
    check("repeat", n_repeats_, 1, 1000);
    check("threads", n_threads_, 1, 1024);
    if (shape_.n_q % shape_.n_kv != 0) {
      throw UsageError(fmt::format("--n-q: expected a multiple of the {} KV heads, found {}",
                                   shape_.n_kv, shape_.n_q));
    }
    const std::vector<Index> lengths = index_list_of(tokens_, "tokens");
    const Index shortest = phase_ == BenchPhase::decode ? 2 : chunk_ + 1;
    if (lengths.front() < shortest) {
      throw UsageError(fmt::format(
          "--tokens: expected at least {}, so that there are keys before the call, found {}",
          shortest, lengths.front()));
    }
    const double n_bytes = 4.0 * static_cast<double>(shape_.d_head) *
                           (2.0 * static_cast<double>(shape_.n_kv * lengths.back()) +
                            static_cast<double>(shape_.n_q * chunk_));
    if (n_bytes > kMostWorkloadBytes) {
      throw UsageError(fmt::format("--tokens: {} tokens of this shape take {}, more than {}",
                                   lengths.back(), bytes_text(n_bytes),
                                   bytes_text(kMostWorkloadBytes)));
    }
    return lengths;
  }

  std::vector<MethodSpec> chosen_selectors() const {
    if (!selectors_.empty()) return selectors_of(selectors_);
    std::vector<MethodSpec> all;
    for (const SelectorEntry& entry : selector_registry().entries()) all.push_back(entry.name);
    return all;
  }

  Json measure(const BenchCall& call, const std::vector<std::pair<MethodSpec, Budget>>& pairs,
               ThreadPool& pool, const ProgressFn& progress, const std::stop_token& stop) const {
    DenseRun dense(call);
    const std::string stage =
        fmt::format("{} at {}", std::string(name_of(call.phase)), call.n_tokens);
    const auto n_pairs = static_cast<std::int64_t>(pairs.size());
    const std::int64_t total = (n_repeats_ + 2) * n_pairs;
    std::int64_t done = 0;
    const auto step = [&] {
      if (stop.stop_requested()) throw Interrupted("bench select stopped");
      if (progress) progress({stage, ++done, total, "answers"});
    };
    std::vector<SelectorBench> subjects;
    subjects.reserve(pairs.size());
    Json left_out = Json::array();
    for (const auto& [spec, budget] : pairs) {
      const SelectorCaps& caps = spec.caps();
      if (call.phase == Phase::prefill ? caps.prefill : caps.decode) {
        subjects.emplace_back(spec, budget, call, precision_, pool);
      } else {
        left_out.push_back(spec.text());
      }
      step();
    }
    std::vector<double> dense_seconds;
    for (Index round = 0; round <= n_repeats_; ++round) {
      const bool counted = round > 0;
      const double seconds = seconds_of([&] { dense.run(pool); });
      if (counted) dense_seconds.push_back(seconds);
      for (SelectorBench& subject : subjects) {
        subject.measure(counted);
        step();
      }
    }
    Json report = {{"phase", std::string(name_of(call.phase))},
                   {"tokens", call.n_tokens},
                   {"queries", call.n_tok},
                   {"dense",
                    {{"seconds_median", median(dense_seconds)},
                     {"gflops_per_second", dense.flops() / median(dense_seconds) / 1e9},
                     {"gflop", dense.flops() / 1e9},
                     {"seconds", dense_seconds}}},
                   {"not_defined", left_out},
                   {"selectors", Json::array()}};
    for (const SelectorBench& subject : subjects)
      report["selectors"].push_back(subject.report(dense_seconds, dense.flops()));
    return report;
  }

  /// One flat row per call and selector, as other commands write them; dense attention is "full".
  static Json rows_of(const Json& cases) {
    Json rows = Json::array();
    for (const Json& one : cases) {
      const double dense = one.at("dense").at("seconds_median").get<double>();
      const Json call = {{"phase", one.at("phase")},
                         {"tokens", one.at("tokens")},
                         {"queries", one.at("queries")},
                         {"dense_seconds_median", dense}};
      for (const Json& selector : one.at("selectors")) {
        Json row = call;
        for (const auto& [key, value] : selector.items()) {
          if (!value.is_structured() && key != "budget") row[key] = value;
        }
        const Json& budget = selector.at("budget");
        const std::string text = budget.is_string() ? budget.get<std::string>() : std::string();
        const std::size_t sign = text.find('=');
        const auto value = sign == std::string::npos
                               ? std::nullopt
                               : number_from<double>(std::string_view(text).substr(sign + 1));
        row["budget_kind"] = value ? text.substr(0, sign) : std::string("none");
        row["budget"] = value ? Json(*value) : Json(nullptr);
        rows.push_back(std::move(row));
      }
    }
    return rows;
  }

  static std::string describe(const Json& report) {
    std::string out = fmt::format(
        "time of selecting, dense attention of the same call = 1 (speedup: of selecting and attending together): {} query and {} KV heads of {} "
        "channels, {} threads on {}\n",
        report.at("n_q").get<Index>(), report.at("n_kv").get<Index>(),
        report.at("d_head").get<Index>(), report.at("threads").get<Index>(),
        report.at("cpu").get<std::string>());
    for (const Json& one : report.at("cases")) {
      out += fmt::format("\n{}, {} keys, {} queries: dense attention {} ({:.1f} GFLOP/s)\n",
                         one.at("phase").get<std::string>(), one.at("tokens").get<Index>(),
                         one.at("queries").get<Index>(),
                         seconds_text(one.at("dense").at("seconds_median").get<double>()),
                         one.at("dense").at("gflops_per_second").get<double>());
      TextTable table(
          {"selector", "budget", "select", "time", "append", "FLOPs", "kept", "speedup"});
      for (const Json& row : one.at("selectors")) {
        const auto number = [&](const char* key) {
          return number_text(row.at(key).get<double>(), 3);
        };
        table.add_row(
            {row.at("selector").get<std::string>(),
             row.at("budget").is_null() ? "" : row.at("budget").get<std::string>(),
             number("select_over_dense"),
             fmt::format("{} ms", number_text(1e3 * row.at("seconds_median").get<double>(), 3)),
             number("append_over_dense"), number("flops_over_dense"),
             number_text(row.at("kept").get<double>(), 6),
             row.at("speedup").is_null() ? "" : number("speedup")});
      }
      out += table.text();
    }
    return out;
  }

  std::string kv_dtype_ = "f32";
  std::vector<std::string> selectors_;
  std::vector<std::string> budgets_;
  std::string tokens_ = "4096,16384,32768";
  BenchPhase phase_ = BenchPhase::both;
  ScorePrecision precision_ = ScorePrecision::f32;
  Index chunk_ = 128;
  WorkloadShape shape_;
  Index n_repeats_ = 5;
  int n_threads_ = 1;
  ProgressMode progress_ = ProgressMode::automatic;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_bench_select_command() {
  return std::make_unique<BenchSelect>();
}

}  // namespace kvscope::cli

// kvscope bench select: how long selectors take to choose keys, and attention to read them, beside
// dense attention of the same made-up call.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/base/number_formats.hpp"
#include "analysis/base/replay_pairs.hpp"
#include "analysis/base/statistics.hpp"
#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/filled_text.hpp"
#include "analysis/cli/frame/list_options.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/runs/bench_report.hpp"
#include "analysis/cost/made_up_text.hpp"
#include "analysis/cost/work.hpp"
#include "core/attention/dense_attention.hpp"
#include "core/attention/sparse_attention.hpp"
#include "core/base/cpu.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/number_text.hpp"
#include "core/model/kv_cache.hpp"
#include "core/selectors/key_rotation.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/score_engine.hpp"
#include "core/selectors/spec_lists.hpp"
#include "core/sim/attended.hpp"
#include "core/tensor/lane_kernels.hpp"
#include "core/trace/memory_trace.hpp"

namespace kvscope::cli {

/// Which calls are measured.
enum class BenchPhase { both, prefill, decode };

namespace {

constexpr double kMostWorkloadBytes = 16.0 * 1024 * 1024 * 1024;
constexpr Index kCalibrationTokens = 1024;
constexpr Index kLayers = 32;  // of the model that the selectors are told about

/// Queries of any context's last positions, keys and values of a made-up text, in memory.
struct Workload {
  Tensor<float> q;                           // [n_q, n_queries, d_head]
  Tensor<float> k;                           // [n_kv, n_tokens, d_head]
  Tensor<float> v;                           // [n_kv, n_tokens, d_head]
  Tensor<std::uint16_t> k_halves, v_halves;  // the same in bf16 after round_to_bf16()

  /// The same numbers for every thread count, and a key's do not depend on the number of tokens.
  Workload(const TraceInfo& shape, Index n_queries, std::uint64_t seed, ThreadPool& pool)
      : q({shape.n_q, n_queries, shape.d_head}),
        k(make_cache_rows({shape.n_kv, shape.n_tokens, shape.d_head})),
        v(make_cache_rows({shape.n_kv, shape.n_tokens, shape.d_head})) {
    const MadeUpText text(shape, MadeUp::uneven, seed);
    const auto fill = [&](TraceTensor what, Tensor<float>& rows) {
      constexpr Index kBlock = 1024;  // tokens that one piece of parallel work fills
      const Index n_blocks = (rows.dim(1) + kBlock - 1) / kBlock;
      pool.parallel_for(rows.dim(0) * n_blocks, [&](Index i, int) {
        const Index begin = i % n_blocks * kBlock;
        const Tensor<float> part =
            text.read(what, 0, i / n_blocks, {begin, std::min(begin + kBlock, rows.dim(1))});
        std::ranges::copy(part.flat(), rows.sub(i / n_blocks).row(begin).data());
      });
    };
    fill(TraceTensor::q, q);
    fill(TraceTensor::k, k);
    fill(TraceTensor::v, v);
  }

  /// Keys and values as a cache in bf16 holds them; k and v become these values.
  void round_to_bf16() {
    const auto round = [](Tensor<float>& rows, Tensor<std::uint16_t>& halves) {
      halves = Tensor<std::uint16_t>::uninitialized(rows.shape());
      const auto n = static_cast<std::size_t>(rows.count());
      from_float(rows.data(), DType::bf16, halves.data(), n);
      to_float(DType::bf16, halves.data(), rows.data(), n);
    };
    round(k, k_halves);
    round(v, v_halves);
  }
  HalfRows halves(Index n_tokens) const {  // of the first n_tokens; none before round_to_bf16()
    if (k_halves.count() == 0) return {};
    return {k_halves.view().range(1, 0, n_tokens), v_halves.view().range(1, 0, n_tokens),
            matmul_from_name("bf16")};
  }
};

/// One forward call of the workload: the last n_tok of n_tokens positions.
struct BenchCall {
  const Workload& data;
  Phase phase = Phase::prefill;
  Index n_tokens = 0;
  Index n_tok = 0;
  Index pos_begin() const { return n_tokens - n_tok; }
  AttentionQuestion question() const {
    AttentionQuestion question;
    question.pos_begin = pos_begin();
    question.n_tok = n_tok;
    question.score_scale = 1.0f / std::sqrt(static_cast<float>(data.q.dim(2)));
    question.q = data.q.view().range(1, 0, n_tok);
    question.k = data.k.view().range(1, 0, n_tokens);
    question.v = data.v.view().range(1, 0, n_tokens);
    return question;
  }
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
  SelectorBench(const ReplayPair& pair, const BenchCall& call, ScorePrecision precision,
                ThreadPool& pool)
      : spec_(pair.selector),
        budget_(pair.budget),
        bench_call_(call),
        pool_(&pool),
        precision_(precision),
        alive_(call.data.k.dim(0)) {
    alive_.append(call.n_tokens);
    selector_ = spec_.make();
    caps_ = spec_.caps();
    remembers_ = caps_.permanent || caps_.needs_probs;
    call_ = SelectCall{call.question()};
    call_.layer = caps_.dense_layers;
    call_.phase = call.phase;
    call_.budget = budget_.value_or(Budget{});
    first_seconds_ = prepare();
    if (!remembers_) first_seconds_ += ask();
  }

  /// Asks once more.
  void measure(bool counted) {
    if (remembers_) {
      used_.push_back(std::move(selector_));
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

  /// The method in this call; dense attention, whose rounds ran in turn with its own, is said in
  /// every row.
  Json row(const std::vector<double>& dense) const {
    std::vector<double> ratios, speedups;
    for (std::size_t i = 0; i < dense.size(); ++i) {
      ratios.push_back(seconds_[i] / dense[i]);
      if (!attend_seconds_.empty())
        speedups.push_back(dense[i] / (seconds_[i] + attend_seconds_[i]));
    }
    SelectCall question = call_;
    question.alive = &alive_;
    const SelectCost cost = selector_->cost(question, selection_);
    const LayerWork work =
        measured_work(selection_, cost, call_.q.dim(0), call_.k.dim(0), call_.q.dim(2),
                      {bench_call_.pos_begin(), bench_call_.n_tokens}, caps_.page_size);
    const double dense_flops = 4.0 * work.shape.d_head * dense_work(work.shape).attend.pairs;
    const double n_kept = static_cast<double>(selection_.keys().size());
    // some methods build what they keep at the first question: it belongs to appending
    const double append =
        remembers_ ? first_seconds_ : std::max(first_seconds_ - median(seconds_), 0.0);
    Json json = {{"phase", std::string(enum_name(bench_call_.phase))},
                 {"tokens", bench_call_.n_tokens},
                 {"queries", bench_call_.n_tok},
                 {"dense_seconds_median", median(dense)},
                 {"dense_gflops_per_second", dense_flops / median(dense) / 1e9},
                 {"selector", spec_.text()},
                 {"select_over_dense", median(ratios)}};
    add_spread(json, "speedup", speedups);
    json.update({{"attend_seconds_median", json_number(median(attend_seconds_))},
                 {"flops_over_dense", work.score_flops / dense_flops},
                 {"append_over_dense", append / median(dense)},
                 {"seconds_median", median(seconds_)},
                 {"append_seconds", append},
                 {"kept", selection_.is_dense ? static_cast<double>(bench_call_.n_tokens)
                                              : n_kept / static_cast<double>(selection_.n_lists())},
                 {"budget_kind", kind_of(budget_)},
                 {"budget", budget_ ? Json(budget_->value) : Json(nullptr)}});
    return json;
  }

 private:
  /// A selector at the start of a sequence; returns the seconds of that.
  double prepare() {
    if (caps_.needs_calibration) {
      const MadeUpText text(make_trace_info(kLayers, call_.q.dim(0), call_.k.dim(0), call_.q.dim(2),
                                            kCalibrationTokens, kCalibrationTokens),
                            MadeUp::alike, 1);
      selector_->calibrate(text, std::span(&call_.layer, 1), *pool_);
    }
    AttentionShape shape{.n_layers = kLayers,
                         .n_q = call_.q.dim(0),
                         .n_kv = call_.k.dim(0),
                         .d_head = call_.q.dim(2),
                         .max_tokens = bench_call_.n_tokens,
                         .score_scale = call_.score_scale};
    KeyRotation rotation;
    for (Index i = 0; i < shape.d_head / 2; ++i)
      rotation.frequencies.push_back(
          std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(shape.d_head)));
    shape.rotations = std::make_shared<const std::vector<KeyRotation>>(
        static_cast<std::size_t>(kLayers), rotation);
    // Lives as long as a sequence.
    if (engine_ == nullptr) engine_ = std::make_unique<ScoreEngine>(precision_, pool_);
    call_.engine = engine_.get();
    return seconds_of([&] { selector_->reset(shape); });
  }

  double ask() {
    AliveMask alive = alive_;
    CrossLayerContext context;
    call_.alive = &alive;
    call_.context = &context;
    const double seconds = seconds_of([&] {
      selection_ = selector_->select(call_);
      if (caps_.needs_probs) selector_->observe(call_, ListProbs(call_, selection_));
      if (caps_.permanent) selector_->evict(call_, alive);
    });
    call_.alive = nullptr;
    call_.context = nullptr;
    return seconds;
  }

  std::unique_ptr<ListRun> lists_;
  MethodSpec spec_;
  std::optional<Budget> budget_;
  const BenchCall& bench_call_;
  ThreadPool* pool_;
  ScorePrecision precision_;
  std::unique_ptr<ScoreEngine> engine_;
  AliveMask alive_;  // everything
  std::unique_ptr<Selector> selector_;
  /// Those of earlier questions: the engine knows what a method keeps by the method's address.
  std::vector<std::unique_ptr<Selector>> used_;
  SelectorCaps caps_;
  bool remembers_ = false;
  SelectCall call_;
  Selection selection_;
  double first_seconds_ = 0.0;
  std::vector<double> seconds_;
  std::vector<double> attend_seconds_;
};

/// Each method with the first budget of a kind that it takes.
PairPlan with_budgets(const std::vector<MethodSpec>& specs, const std::vector<Budget>& budgets) {
  PairPlan out;
  for (const MethodSpec& spec : specs) {
    const SelectorCaps& caps = spec.caps();
    const auto fits = std::ranges::find_if(budgets, [&](const Budget& budget) {
      return std::ranges::find(caps.budgets, budget.kind) != caps.budgets.end();
    });
    if (!caps.budgets.empty() && fits == budgets.end()) {
      out.skipped.push_back(fmt::format("{} takes none of the budgets", spec));
    } else if (caps.needs_draft) {
      out.skipped.push_back(fmt::format("{} needs a draft model", spec));
    } else {
      out.pairs.push_back({spec, caps.budgets.empty() ? std::nullopt : std::optional(*fits)});
    }
  }
  return out;
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
    options.add("n-q", "N", "query heads", n_q_, in(1, 1024));
    options.add("n-kv", "N", "KV heads", n_kv_, in(1, 1024));
    options.add("d-head", "N", "channels of a head", d_head_, in(1, 1024));
    options.add("repeat", "N", "measured rounds, after one to warm up", n_repeats_, in(1, 1000));
    options.add("seed", "N", "seed of the numbers", seed_);
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

  Json measure(Working& means) const override {
    const PairPlan chosen = methods();
    const std::vector<Index> lengths = ascending_lengths();
    std::vector<Phase> phases;
    if (phase_ != BenchPhase::decode) phases.push_back(Phase::prefill);
    if (phase_ != BenchPhase::prefill) phases.push_back(Phase::decode);
    const DType kv_dtype = kv_dtype_from_name(kv_dtype_);
    const std::size_t n_calls = phases.size() * lengths.size();
    if (chosen.pairs.size() * n_calls > kManyCases)
      note(
          "kvscope: {} methods, each {} times in {} calls (at {} keys): minutes; --selector, "
          "--lengths and --repeat shorten it, --progress plain says how far it is",
          chosen.pairs.size(), n_repeats_ + 1, n_calls, fmt::join(lengths, ", "));
    Workload data(make_trace_info(1, n_q_, n_kv_, d_head_, lengths.back(), chunk_), chunk_, seed_,
                  means.pool);
    if (kv_dtype == DType::bf16) data.round_to_bf16();
    Json rows = Json::array();
    for (const Phase phase : phases) {
      for (const Index n_tokens : lengths)
        measure_call({data, phase, n_tokens, phase == Phase::decode ? 1 : chunk_}, chosen.pairs,
                     means, rows);
    }
    return {{"bench", "select"},
            {"n_q", n_q_},
            {"n_kv", n_kv_},
            {"d_head", d_head_},
            {"repeat", n_repeats_},
            {"seed", seed_},
            {"threads", means.pool.n_threads()},
            {"precision", std::string(enum_name(precision_))},
            {"kv_dtype", kv_dtype_},
            {"vector_target", vector_targets().empty() ? "" : vector_targets().front()},
            {"left_out", chosen.skipped},
            {"rows", rows}};
  }

 private:
  /// Throws UsageError if none is left.
  PairPlan methods() const {
    std::vector<MethodSpec> specs = selectors_of(selectors_);
    if (selectors_.empty()) {
      for (const SelectorEntry& entry : selector_registry().entries())
        if (!entry.caps.needs_projection) specs.emplace_back(entry.name);  // no model here
    }
    PairPlan chosen = with_budgets(
        specs, split_budgets(budgets_.empty() ? std::vector<std::string>{"tokens=1024", "p=0.95"}
                                              : budgets_));
    if (chosen.pairs.empty())
      throw UsageError("--selector: nothing is left to measure: {}",
                       fmt::join(chosen.skipped, "; "));
    return chosen;
  }

  void measure_call(const BenchCall& call, const std::vector<ReplayPair>& pairs, Working& means,
                    Json& rows) const {
    const AttentionQuestion dense = call.question();
    Tensor<float> out({n_q_, call.n_tok, d_head_});
    Tensor<float> lse({n_q_, call.n_tok});
    const HalfRows halves = call.data.halves(call.n_tokens);
    std::vector<SelectorBench> subjects;
    subjects.reserve(pairs.size());
    for (const ReplayPair& pair : pairs) {
      if (means.stop.stop_requested()) throw Interrupted("the benchmark of selectors was stopped");
      if (pair.selector.caps().is_defined(call.phase))
        subjects.emplace_back(pair, call, precision_, means.pool);
    }
    std::vector<double> seconds;
    const std::string stage = fmt::format("{} at {}", enum_name(call.phase), call.n_tokens);
    take_turns({stage, n_repeats_, /*has_warm_up=*/true, call.n_tokens}, subjects.size() + 1, means,
               [&](std::size_t subject, bool counted) {
                 if (subject < subjects.size()) return subjects[subject].measure(counted);
                 const double own = seconds_of([&] {
                   attend_dense(dense, {out.view(), lse.view()}, means.pool, halves);
                 });
                 if (counted) seconds.push_back(own);
               });
    for (const SelectorBench& subject : subjects) rows.push_back(subject.row(seconds));
  }

  /// Context lengths, ascending.
  std::vector<Index> ascending_lengths() const {
    if (n_q_ % n_kv_ != 0) {
      throw UsageError("--n-q: expected a multiple of the {} KV heads, found {}", n_kv_, n_q_);
    }
    const std::vector<Index> lengths = index_list_of(lengths_, "lengths");
    const Index shortest = phase_ == BenchPhase::decode ? 2 : chunk_ + 1;
    if (lengths.front() < shortest) {
      throw UsageError(
          "--lengths: expected at least {}, so that there are keys before the call, found {}",
          shortest, lengths.front());
    }
    const double n_bytes =
        4.0 * static_cast<double>(d_head_) *
        (2.0 * static_cast<double>(n_kv_ * lengths.back()) + static_cast<double>(n_q_ * chunk_));
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
  Index n_q_ = 24;
  Index n_kv_ = 8;
  Index d_head_ = 128;
  std::uint64_t seed_ = 1;
  Index n_repeats_ = 5;
};

}  // namespace

KVSCOPE_COMMAND(360, BenchSelect)

}  // namespace kvscope::cli

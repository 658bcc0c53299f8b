#include "analysis/cli/runs/bench_select_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/cost/made_up_text.hpp"
#include "core/attention/dense_attention.hpp"
#include "core/attention/sparse_attention.hpp"
#include "core/base/error.hpp"
#include "core/model/kv_cache.hpp"
#include "core/selectors/key_rotation.hpp"
#include "core/selectors/registry.hpp"
#include "core/sim/attended.hpp"
#include "core/tensor/lane_kernels.hpp"
#include "core/trace/memory_trace.hpp"

namespace kvscope::cli {
namespace {

constexpr Index kCalibrationTokens = 1024;
constexpr Index kLayers = 32;  // of the model that the selectors are told about

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
                const SelectBenchPlan& plan, ThreadPool& pool)
      : spec_(std::move(spec)),
        bench_call_(call),
        pool_(&pool),
        precision_(plan.precision),
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

  SelectBenchRow row() const {
    SelectBenchRow row{.selector = spec_.text()};
    if (!caps_.budgets.empty()) row.budget = call_.budget;
    SelectCall question = call_;
    question.alive = &alive_;
    const SelectCost cost = selector_->cost(question, selection_);
    row.work = measured_work(selection_, cost, call_.q.dim(0), call_.k.dim(0), call_.q.dim(2),
                             {bench_call_.pos_begin(), bench_call_.n_tokens}, caps_.page_size);
    const double n_kept = static_cast<double>(selection_.keys().size());
    row.kept = selection_.is_dense ? static_cast<double>(bench_call_.n_tokens)
                                   : n_kept / static_cast<double>(selection_.n_lists());
    row.seconds = seconds_;
    row.attend_seconds = attend_seconds_;
    // some methods build what they keep at the first question: it belongs to appending
    row.append_seconds =
        remembers_ ? first_seconds_ : std::max(first_seconds_ - median(seconds_), 0.0);
    return row;
  }

 private:
  /// A selector at the start of a sequence; returns the seconds of that.
  double prepare() {
    if (caps_.needs_calibration) {
      const MadeUpText text(make_trace_info(kLayers, call_.q.dim(0), call_.k.dim(0), call_.q.dim(2),
                                            kCalibrationTokens, kCalibrationTokens),
                            MadeUp::alike, 1);
      ThreadPool one(1);
      selector_->calibrate(text, std::span(&call_.layer, 1), pool_ != nullptr ? *pool_ : one);
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

SelectBenchCase measure_case(const BenchCall& call, const SelectBenchPlan& plan,
                             const BenchMeans& means) {
  DenseRun dense(call);
  SelectBenchCase out;
  out.phase = call.phase;
  out.n_tokens = call.n_tokens;
  out.n_tok = call.n_tok;
  out.dense_flops = dense.flops();
  std::vector<SelectorBench> subjects;
  subjects.reserve(plan.methods.size());
  for (const auto& [spec, budget] : plan.methods) {
    const SelectorCaps& caps = spec.caps();
    if (means.stop.stop_requested()) throw Interrupted("the benchmark of selectors was stopped");
    if (call.phase == Phase::prefill ? caps.prefill : caps.decode)
      subjects.emplace_back(spec, budget, call, plan, means.pool);
  }
  const std::string stage = fmt::format("{} at {}", name_of(call.phase), call.n_tokens);
  take_turns({stage, plan.n_repeats, /*has_warm_up=*/true, call.n_tokens}, subjects.size() + 1,
             means, [&](std::size_t subject, bool counted) {
               if (subject < subjects.size()) return subjects[subject].measure(counted);
               const double seconds = seconds_of([&] { dense.run(means.pool); });
               if (counted) out.dense_seconds.push_back(seconds);
             });
  for (const SelectorBench& subject : subjects) out.rows.push_back(subject.row());
  return out;
}

}  // namespace

BudgetedMethods with_budgets(const std::vector<MethodSpec>& specs,
                             const std::vector<Budget>& budgets) {
  BudgetedMethods out;
  for (const MethodSpec& spec : specs) {
    const SelectorCaps& caps = spec.caps();
    const auto fits = std::ranges::find_if(budgets, [&](const Budget& budget) {
      return std::ranges::find(caps.budgets, budget.kind) != caps.budgets.end();
    });
    if (!caps.budgets.empty() && fits == budgets.end()) {
      out.left_out.push_back(fmt::format("{} takes none of the budgets", spec));
    } else if (caps.needs_draft) {
      out.left_out.push_back(fmt::format("{} needs a draft model", spec));
    } else {
      out.methods.emplace_back(spec, caps.budgets.empty() ? Budget{} : *fits);
    }
  }
  return out;
}

std::vector<Budget> default_bench_budgets() {
  return {{Budget::Kind::tokens, 1024.0}, {Budget::Kind::mass, 0.95}};
}

std::vector<MethodSpec> all_methods_of_registry() {
  std::vector<MethodSpec> all;
  for (const SelectorEntry& entry : selector_registry().entries()) {
    if (!entry.caps.needs_projection) all.push_back(entry.name);  // no model here
  }
  return all;
}

std::vector<SelectBenchCase> run_select_bench(const SelectBenchPlan& plan,
                                              const BenchMeans& means) {
  WorkloadShape shape = plan.shape;
  shape.n_tokens = plan.lengths.back();
  Workload data(shape, means.pool);
  if (plan.kv_dtype == DType::bf16) data.round_to_bf16();
  std::vector<SelectBenchCase> cases;
  for (const Phase phase : plan.phases) {
    for (const Index n_tokens : plan.lengths) {
      const BenchCall call{data, phase, n_tokens, phase == Phase::decode ? 1 : shape.n_queries};
      cases.push_back(measure_case(call, plan, means));
    }
  }
  return cases;
}

}  // namespace kvscope::cli

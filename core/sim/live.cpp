#include "core/sim/live.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/stopwatch.hpp"
#include "core/sim/model_projection.hpp"
#include "core/sim/rotations.hpp"

namespace kvscope {

AttentionShape attention_shape(const ModelConfig& config, Index max_tokens) {
  AttentionShape shape;
  shape.n_layers = config.n_layers;
  shape.n_q = config.n_q;
  shape.n_kv = config.n_kv;
  shape.d_head = config.d_head;
  shape.max_tokens = max_tokens;
  shape.score_scale = config.score_scale();
  shape.score_cap = static_cast<float>(config.plan.score_softcap);
  for (const auto& window : config.window) shape.has_window.push_back(window.has_value());
  shape.rotations = rotations_of(config);
  return shape;
}

/// What the model calls in its layers during one forward call.
class LiveSequence::Policy final : public AttentionPolicy {
 public:
  Policy(LiveSequence& live, Phase phase) : live_(live), phase_(phase) {}

  bool reads_values() const override { return live_.run_->selector().caps().needs_values; }
  bool takes(Index layer) const override {
    return !live_.model_.config().window[static_cast<std::size_t>(layer)];
  }

  const Selection& choose(const AttentionQuestion& question) override {
    return live_.run_->layer_call(question, {.pool = &live_.pool_})[0];
  }

  HostRows host_rows(Index) override {
    return live_.run_->looks_back() ? HostRows::all : live_.run_->host_rows();
  }

  std::optional<ListPlan> plan(Index layer) override {
    const std::optional<ListPlan> plan = live_.run_->plan(layer);
    // every backend attends densely
    const bool is_dense = plan && plan->by == ListPlan::By::nothing;
    return is_dense || live_.model_.backend().follows_plans() ? plan : std::nullopt;
  }

  ChosenAbout asks(const ListPlan& plan) const override {
    return live_.is_sparse_ && plan.by != ListPlan::By::nothing ? ChosenAbout::counts
                                                                : ChosenAbout::nothing;
  }

  void on_planned(const AttentionQuestion& question, const ListPlan& plan,
                  const ChosenKeys& chosen) override {
    const Index n_tok = question.n_tok;
    const bool is_dense = plan.by == ListPlan::By::nothing;
    live_.run_->planned_call(question, is_dense ? Selection::dense(ListOwner::layer, n_tok)
                                                : Selection(ListOwner::kv_head, n_tok, n_tok));
    if (!live_.is_sparse_) return;
    const TokenRange call = range_of(question);
    count(question, is_dense ? CostTotals::of_dense(live_.shape_.n_q, live_.shape_.n_kv, call)
                             : CostTotals::of_counts(chosen.counts(), call));
  }

  void on_attended(const AttentionQuestion& question, const Selection& selection) override {
    if (live_.is_sparse_)
      count(question,
            CostTotals::of(selection, live_.shape_.n_q, live_.shape_.n_kv, range_of(question)));
  }

 private:
  static TokenRange range_of(const AttentionQuestion& question) {
    return {question.pos_begin, question.pos_begin + question.n_tok};
  }
  void count(const AttentionQuestion& question, const CostTotals& kept) {
    live_.stats_.add(phase_, kept, live_.shape_, live_.run_->selects_in(question.layer),
                     live_.run_->cost(0).score_bytes);
  }

  LiveSequence& live_;
  Phase phase_;
};

LiveSequence::LiveSequence(const Transformer& model, const LiveOptions& options, Index capacity,
                           ThreadPool& pool, const LiveCalibration& calibration)
    : model_(model),
      pool_(pool),
      cache_(model.make_store(capacity)),
      shape_(attention_shape(model.config(), capacity)) {
  shape_.projection = projection_of(model);
  MethodSpec method = options.selector;
  if (options.dense_layers) method.fill("dense-layers", *options.dense_layers);
  const SelectorCaps& caps = method.caps();
  if (!caps.budgets.empty() && !options.budget)
    throw ConfigError("selector {}: a budget is missing", options.selector);
  run_ = std::make_unique<SelectorRun>(method.make(), shape_,
                                       std::vector<Budget>{options.budget.value_or(Budget{})},
                                       options.dense_layers, ScorePrecision::f32);
  if (options.watch) run_->set_watch(options.watch);
  has_history_ = caps.permanent || caps.needs_probs;
  if (!caps.needs_calibration) return;
  if (calibration.text == nullptr)
    throw ConfigError("selector {}: needs a calibration text, and there is none", options.selector);
  std::vector<Index> layers;
  for (Index layer = shape_.next_asked(0); layer < shape_.n_layers;
       layer = shape_.next_asked(layer + 1))
    layers.push_back(layer);
  run_->calibrate(*calibration.text, layers, pool_);
}

LiveSequence::LiveSequence(LiveSequence&&) noexcept = default;
LiveSequence::~LiveSequence() = default;

void LiveSequence::set_sparse(bool is_sparse) {
  is_sparse_ = is_sparse;
  run_->set_open(is_sparse || has_history_);
}

bool LiveSequence::shares_dense_prefill() const {
  return !has_history_;
}

Tensor<float> LiveSequence::run(Phase phase, std::span<const TokenId> tokens, Logits logits,
                                std::span<const Tensor<float>> draft_rows) {
  const Stopwatch start;
  run_->begin_call(phase, static_cast<Index>(tokens.size()), draft_rows);
  Policy policy(*this, phase);
  ForwardTimes times;
  ForwardOptions options;
  options.logits = logits;
  options.policy = &policy;
  options.times = &times;
  Tensor<float> out = model_.forward(tokens, *cache_, pool_, options);
  stats_.times.attention += times.attention_seconds;
  stats_.times.selection += times.selection_seconds;
  stats_.times.total += start.seconds();
  return out;
}

Tensor<float> LiveSequence::prefill(std::span<const TokenId> tokens, Index chunk, PrefillMode mode,
                                    Logits logits) {
  if (chunk < 1) throw ConfigError("prefill: expected a chunk of at least 1, found {}", chunk);
  const bool was_sparse = is_sparse_;
  set_sparse(mode == PrefillMode::sparse);
  Tensor<float> last;
  for (std::size_t at = 0; at < tokens.size(); at += static_cast<std::size_t>(chunk)) {
    const auto part =
        tokens.subspan(at, std::min(static_cast<std::size_t>(chunk), tokens.size() - at));
    const bool is_last = at + part.size() == tokens.size();
    last = run(Phase::prefill, part, is_last ? logits : Logits::none);
  }
  set_sparse(was_sparse);
  return last;
}

void LiveSequence::adopt(const KvStore& dense) {
  if (!shares_dense_prefill() || n_tokens() != 0) {
    throw ConfigError(
        "selector {}: cannot take over a dense prefill of {} tokens (it has seen {}, "
        "or it has a history)",
        run_->selector().name(), dense.n_tokens(), n_tokens());
  }
  cache_->copy_from(dense);
  if (n_tokens() == 0) return;
  const bool was_sparse = is_sparse_;
  set_sparse(false);
  run_->begin_call(Phase::prefill, n_tokens());
  // A closed method looks at nothing: what it wants to know of these keys it asks when it is open.
  const TensorView<const float> q(nullptr, Shape{shape_.n_q, n_tokens(), shape_.d_head});
  const TensorView<const float> kv(nullptr, Shape{shape_.n_kv, n_tokens(), shape_.d_head});
  for (Index layer = 0; layer < shape_.n_layers; ++layer) {
    if (model_.config().window[static_cast<std::size_t>(layer)]) continue;
    run_->planned_call({.layer = layer, .q = q, .k = kv, .v = kv},
                       Selection::dense(ListOwner::layer, n_tokens()));
  }
  set_sparse(was_sparse);
}

void LiveSequence::go_on_from(const LiveSequence& other) {
  run_->go_on_from(*other.run_);
  cache_->copy_from(*other.cache_);
  is_sparse_ = other.is_sparse_;
}

void LiveSequence::rollback(Index n_tokens) {
  cache_->truncate(n_tokens);
  run_->rollback(n_tokens);
}

}  // namespace kvscope

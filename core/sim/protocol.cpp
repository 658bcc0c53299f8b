#include "core/sim/protocol.hpp"

#include <algorithm>
#include <utility>

#include "core/base/error.hpp"
#include "core/selectors/candidates.hpp"
#include "core/selectors/eviction.hpp"
#include "core/selectors/list_owner.hpp"
#include "core/sim/attended.hpp"

namespace kvscope {

namespace {

void check_shape(std::string_view what, Index layer, const TensorView<const float>& tensor,
                 const Shape& expected) {
  if (tensor.shape() == expected) return;
  throw ShapeError("layer {}: {} has shape {}, expected {}", layer, what, to_string(tensor.shape()),
                   to_string(expected));
}

Tensor<float> clone_of(TensorView<const float> rows) {
  auto clone = Tensor<float>::uninitialized(rows.shape());
  float* next = clone.data();
  for_each_row(rows,
               [&](const float* row) { next = std::copy_n(row, rows.dim(rows.rank() - 1), next); });
  return clone;
}

}  // namespace

bool can_share_scoring(const SelectorCaps& caps) {
  return !caps.permanent && !caps.needs_probs && !caps.cross_layer;
}

SelectorRun::SelectorRun(std::unique_ptr<Selector> selector, const AttentionShape& shape,
                         std::vector<Budget> budgets, std::optional<Index> dense_layers,
                         ScorePrecision precision)
    : selector_(std::move(selector)),
      caps_(selector_->caps()),
      shape_(shape),
      budgets_(std::move(budgets)),
      dense_layers_(std::max(dense_layers.value_or(0), caps_.dense_layers)),
      alive_(static_cast<std::size_t>(shape.n_layers), AliveMask(shape.n_kv)),
      engine_(std::make_unique<ScoreEngine>(precision)) {
  if (budgets_.empty()) throw ConfigError("selector {}: no budget given", selector_->name());
  if (budgets_.size() > 1 && !can_share_scoring(caps_)) {
    throw ConfigError(
        "selector {}: what it keeps depends on the budget, expected one budget per run, found {}",
        selector_->name(), budgets_.size());
  }
  if (caps_.needs_rotation && shape.rotations == nullptr) {
    throw ConfigError(
        "selector {}: needs to know how the model rotates its queries and keys: expected a model, "
        "or a recording with its config.json, of a family that kvscope computes",
        selector_->name());
  }
  if (caps_.needs_projection && shape.projection == nullptr) {
    throw ConfigError(
        "selector {}: needs the model's output projection, which a recording does not have: run it "
        "inside the model (kvscope simulate)",
        selector_->name());
  }
  if (!caps_.budgets.empty()) {
    for (const Budget& budget : budgets_) check_budget_kind(selector_->name(), caps_, budget);
  }
  selector_->reset(shape_);
}

void SelectorRun::begin_call(Phase phase, Index n_tok, std::span<const Tensor<float>> draft_rows) {
  if (n_tok < 1) throw ShapeError("a forward call needs at least one token, found {}", n_tok);
  if (n_keys_ + n_tok > shape_.max_tokens) {
    throw ShapeError("a call of {} tokens after {} exceeds the sequence's {} tokens", n_tok,
                     n_keys_, shape_.max_tokens);
  }
  if (caps_.needs_draft && caps_.is_defined(phase) && draft_rows.empty()) {
    throw ConfigError(
        "selector {}: {} needs the draft model's attention rows, and the recording has none",
        selector_->name(), enum_name(phase));
  }
  phase_ = phase;
  pos_begin_ = n_keys_;
  n_keys_ += n_tok;
  ++n_calls_;
  next_layer_ = 0;
  context_ = {};
  draft_rows_ = draft_rows;
}

void SelectorRun::check_input(const AttentionQuestion& input) const {
  if (input.layer < next_layer_ || input.layer >= shape_.n_layers) {
    throw ShapeError("layer {}: expected a layer in [{}, {}) next", input.layer, next_layer_,
                     shape_.n_layers);
  }
  const Index n_before = alive_[static_cast<std::size_t>(input.layer)].n_keys();
  if (n_before != pos_begin_) {
    throw ShapeError("layer {}: has seen {} tokens when the call begins at {}", input.layer,
                     n_before, pos_begin_);
  }
  const Shape kv{shape_.n_kv, n_keys_, shape_.d_head};
  check_shape("q", input.layer, input.q, Shape{shape_.n_q, n_keys_ - pos_begin_, shape_.d_head});
  check_shape("k", input.layer, input.k, kv);
  if (!input.v.empty()) check_shape("v", input.layer, input.v, kv);
}

bool SelectorRun::keeps_dense(Index layer) const {
  return layer < dense_layers_ || !caps_.is_defined(phase_);
}

void SelectorRun::make_question(const AttentionQuestion& input, const LayerExtras& extras) {
  call_ = SelectCall{input};
  call_.pos_begin = input.k.dim(1) - input.q.dim(1);
  call_.n_tok = input.q.dim(1);
  call_.score_scale = shape_.score_scale;
  call_.score_cap = shape_.score_cap;
  call_.phase = phase_;
  call_.step = n_calls_ - 1;
  call_.alive = &alive_[static_cast<std::size_t>(input.layer)];
  call_.budget = budgets_.back();
  call_.context = &context_;
  call_.draft_rows = draft_rows_;
  call_.engine = engine_.get();
  call_.trace = extras.trace;
  call_.side = extras.side;
}

void SelectorRun::begin_layer(const AttentionQuestion& input, const LayerExtras& extras) {
  check_input(input);
  next_layer_ = input.layer + 1;
  const bool has_keys = input.remote != nullptr || input.k.data() != nullptr;
  if (waits(input.layer) && has_keys) evict_after_verify(input, extras);
  alive_[static_cast<std::size_t>(input.layer)].append(n_keys_ - pos_begin_);
  make_question(input, extras);
}

void SelectorRun::evict_after_verify(const AttentionQuestion& input, const LayerExtras& extras) {
  const Index n_accepted = n_verified(input.layer);
  const Verified verified =
      std::exchange(verified_[static_cast<std::size_t>(input.layer)], Verified{});
  if (n_accepted < 1) return;
  if (verified.is_remote && extras.verified == nullptr)
    throw ConfigError("selector {}: the rows of its last verification are missing",
                      selector_->name());
  const Index end = verified.begin + n_accepted;
  AttentionQuestion past = input;
  past.q = verified.q.count() > 0
               ? verified.q.view().range(1, 0, n_accepted)
               : TensorView<const float>(nullptr, {shape_.n_q, n_accepted, shape_.d_head});
  past.k = input.k.range(1, 0, end);
  if (input.v.rank() == 3) past.v = input.v.range(1, 0, end);
  past.remote = verified.is_remote ? extras.verified : nullptr;
  make_question(past, {});
  call_.phase = Phase::verify;
  const Selection selection = selector_->select(call_);
  if (caps_.needs_probs) selector_->observe(call_, ListProbs(call_, selection));
  selector_->evict(call_, alive_[static_cast<std::size_t>(input.layer)]);
}

bool SelectorRun::waits(Index layer) const {
  return !verified_.empty() && verified_[static_cast<std::size_t>(layer)].n_tok > 0;
}

Index SelectorRun::n_verified(Index layer) const {
  if (!waits(layer)) return 0;
  const Verified& verified = verified_[static_cast<std::size_t>(layer)];
  return std::clamp<Index>(pos_begin_ - verified.begin, 0, verified.n_tok);
}

bool SelectorRun::looks_back() const {
  return caps_.permanent && (phase_ == Phase::verify || !verified_.empty());
}

std::span<const Selection> SelectorRun::layer_call(const AttentionQuestion& input,
                                                   const LayerExtras& extras) {
  if (caps_.needs_values && input.remote == nullptr && input.v.empty()) {
    throw ConfigError("selector {}: needs the values (v), and layer {} has none", selector_->name(),
                      input.layer);
  }
  engine_->set_pool(extras.pool);
  begin_layer(input, extras);
  selections_.clear();  // before the next ones are made: with lists per query both are large
  if (keeps_dense(input.layer)) {
    for (std::size_t i = 0; i < budgets_.size(); ++i) selections_.push_back(alive_selection(call_));
  } else if (!is_open_) {
    selections_ = dense_selections(call_, ListOwner::layer, budgets_.size());
  } else if (watch_) {
    selections_.push_back(watch_(*selector_, call_));
  } else {
    selections_ = selector_->select_budgets(call_, budgets_);
  }
  call_.trace = nullptr;  // it is the caller's
  for (const Selection& selection : selections_)
    check_selection(selection, n_owners(selection.owner, shape_.n_q, shape_.n_kv), n_keys_);
  const bool evicts = caps_.permanent && input.layer >= dense_layers_;
  if (evicts && phase_ == Phase::verify) {  // once it is known which of its tokens stay
    verified_.resize(alive_.size());
    verified_[static_cast<std::size_t>(input.layer)] = {
        input.q.data() == nullptr ? Tensor<float>() : clone_of(input.q), pos_begin_,
        n_keys_ - pos_begin_, input.remote != nullptr};
    return selections_;
  }
  if (caps_.needs_probs) selector_->observe(call_, ListProbs(call_, selections_.back()));
  if (evicts) {
    AliveMask& alive = alive_[static_cast<std::size_t>(input.layer)];
    before_evict_ = alive;
    selector_->evict(call_, alive);
    call_.alive = &before_evict_;
  }
  return selections_;
}

std::optional<ListPlan> SelectorRun::plan(Index layer) const {
  if (budgets_.size() != 1 || engine_->precision() != ScorePrecision::f32) return std::nullopt;
  const bool rests = keeps_dense(layer) || !is_open_;
  if (rests && !caps_.permanent && !caps_.needs_probs) return ListPlan{};
  if (watch_) return std::nullopt;
  return selector_->plan(budgets_.front(), phase_);
}

HostRows SelectorRun::host_rows() const {
  const bool may_ask =
      !watch_ && budgets_.size() == 1 && engine_->precision() == ScorePrecision::f32;
  return may_ask ? selector_->host_rows() : HostRows::all;
}

void SelectorRun::planned_call(const AttentionQuestion& input, Selection selection) {
  begin_layer(input, {});
  selections_.clear();
  selections_.push_back(std::move(selection));
}

SelectCost SelectorRun::cost(std::size_t budget) const {
  if (keeps_dense(call_.layer)) return {};
  SelectCall question = call_;
  question.budget = budgets_[budget];
  return selector_->cost(question, selections_[budget]);
}

void SelectorRun::go_on_from(const SelectorRun& other) {
  if (selector_->remembers()) {
    throw ConfigError(
        "selector {}: remembers earlier calls, so that only one sequence can go on from them",
        selector_->name());
  }
  is_open_ = other.is_open_;
  alive_ = other.alive_;
  verified_.clear();
  for (const Verified& one : other.verified_)
    verified_.push_back({one.q.clone(), one.begin, one.n_tok, one.is_remote});
  phase_ = other.phase_;
  n_calls_ = other.n_calls_;
  next_layer_ = other.next_layer_;
  pos_begin_ = other.pos_begin_;
  n_keys_ = other.n_keys_;
}

void SelectorRun::rollback(Index n_keys) {
  if (n_keys < 0 || n_keys > n_keys_)
    throw ShapeError("rollback to {} keys: the sequence has {}", n_keys, n_keys_);
  for (AliveMask& alive : alive_) alive.truncate(std::min(alive.n_keys(), n_keys));
  engine_->truncate(n_keys);
  n_keys_ = n_keys;
  pos_begin_ = n_keys;
  next_layer_ = shape_.n_layers;
}

}  // namespace kvscope

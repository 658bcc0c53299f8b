#include "core/sim/replay_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/base/error.hpp"
#include "core/sim/rotations.hpp"

namespace kvscope {

const SideView* ReplaySide::of(const TraceSource& trace, Index layer, TokenRange call) {
  const IndexShape& index = trace.info().index;
  if (index.empty()) return nullptr;
  view_ = {};
  if (!index.has_layer(layer)) return &view_;
  const auto read = [&](SideTensor what, Index n_heads, Index width, TokenRange range) {
    Shape shape{n_heads, range.size()};
    if (width > 0) shape = Shape{n_heads, range.size(), width};
    auto all = Tensor<float>::uninitialized(shape);
    for (Index head = 0; head < n_heads; ++head) {
      const Tensor<float> one = trace.read_side(what, layer, head, range);
      std::copy_n(one.data(), one.count(), all.data() + head * one.count());
    }
    return all;
  };
  auto keys = index_k_.find(layer);
  if (keys == index_k_.end()) {
    keys = index_k_
               .emplace(layer, read(SideTensor::index_k, index.n_key_heads, index.width,
                                    {0, trace.info().n_tokens}))
               .first;
  }
  index_q_ = read(SideTensor::index_q, index.n_heads, index.width, call);
  view_.index_q = index_q_.view();
  view_.index_k = keys->second.view().range(1, 0, call.end);
  if (index.has_gates) {
    index_w_ = read(SideTensor::index_w, index.n_heads, 0, call);
    view_.index_w = index_w_.view();
  }
  return &view_;
}

Tensor<float> read_queries(const TraceSource& trace, Index layer, TokenRange range) {
  const TraceInfo& info = trace.info();
  Tensor<float> all = Tensor<float>::uninitialized(Shape{info.n_q, range.size(), info.d_head});
  for (Index head = 0; head < info.n_q; ++head) {
    const Tensor<float> one = trace.read_q(layer, head, range);
    std::copy_n(one.data(), one.count(), all.sub(head).data());
  }
  return all;
}

ReplayLayer read_layer(const TraceSource& trace, Index layer, Index n_tokens) {
  const TraceInfo& info = trace.info();
  ReplayLayer out;
  out.layer = layer;
  out.trace = &trace;
  out.window = info.window_of(layer);
  out.sink_logits = info.layer_sink_logits(layer);
  if (out.window) return out;  // stays dense: nothing to read
  const Shape shape{info.n_kv, n_tokens, info.d_head};
  out.k = Tensor<float>::uninitialized(shape);
  out.v = Tensor<float>::uninitialized(shape);
  for (Index head = 0; head < info.n_kv; ++head) {
    const Tensor<float> k = trace.read_k(layer, head, {0, n_tokens});
    std::copy_n(k.data(), k.count(), out.k.sub(head).data());
    const Tensor<float> v = trace.read_v(layer, head, {0, n_tokens});
    std::copy_n(v.data(), v.count(), out.v.sub(head).data());
  }
  return out;
}

AttentionShape shape_of(const TraceInfo& info) {
  AttentionShape shape;
  shape.n_layers = info.n_layers;
  shape.n_q = info.n_q;
  shape.n_kv = info.n_kv;
  shape.d_head = info.d_head;
  shape.max_tokens = info.n_tokens;
  shape.score_scale = info.score_scale;
  shape.score_cap = info.score_cap;
  for (const auto& window : info.window) shape.has_window.push_back(window.has_value());
  shape.rotations = rotations_of(info);
  return shape;
}

bool has_like_layers(const TraceInfo& info, const std::vector<Index>& layers) {
  std::vector<Index> asked;
  for (const Index layer : info.layers) {
    const bool counts = layers.empty() || layer <= layers.back();
    if (counts && !info.window_of(layer)) asked.push_back(layer);
  }
  return asked.empty() || layers_by_shape(with_layers(info, asked)).size() == 1;
}

void require_like_layers(const TraceSource& trace, const std::vector<Index>& layers,
                         const MethodSpec& selector) {
  if (!selector.caps().cross_layer || has_like_layers(trace.info(), layers)) return;
  throw ConfigError(
      "selector {}: what it finds in one layer serves others, and layers of {} that see everything "
      "differ in KV heads, channels or scores",
      selector.text(), trace.where());
}

ReplayRun::ReplayRun(const std::vector<ReplayPair>& pairs, std::vector<std::size_t> members,
                     const AttentionShape& shape, std::optional<Index> dense_layers)
    : members_(std::move(members)),
      shape_(shape),
      no_query_(static_cast<std::size_t>(shape.d_head), 0.0f) {
  MethodSpec method = pairs[members_.front()].selector;
  if (dense_layers) method.fill("dense-layers", *dense_layers);
  std::vector<Budget> budgets;
  for (std::size_t pair : members_) budgets.push_back(pairs[pair].budget.value_or(Budget{}));
  run_ = std::make_unique<SelectorRun>(method.make(), shape, std::move(budgets), dense_layers);
  if (caps().needs_side) side_ = std::make_unique<ReplaySide>();
  has_history_ = caps().permanent || caps().needs_probs;
}

void ReplayRun::calibrate(const TraceSource* text, const std::vector<ReplayLayer>& layers,
                          ThreadPool& pool) {
  if (!caps().needs_calibration) return;
  if (text == nullptr) {
    throw ConfigError(
        "selector {}: it learns from a calibration text, and the replayed recording is not one: "
        "expected a recording of the same model over another text (kvscope sweep --calibration "
        "TRACE), {}an option of the method that does without (loki: basis=self)",
        run_->selector().name(),
        caps().artifact_option.empty()
            ? std::string("or ")
            : fmt::format("{}=FILE with what kvscope fit wrote, or ", caps().artifact_option));
  }
  const TraceInfo& info = text->info();
  if (info.n_layers != shape_.n_layers || info.n_q != shape_.n_q || info.n_kv != shape_.n_kv ||
      info.d_head != shape_.d_head) {
    throw ConfigError(
        "calibration: {} has {} layers, {} query heads, {} KV heads and {} channels, expected the "
        "replayed model's {}, {}, {} and {}",
        text->where(), info.n_layers, info.n_q, info.n_kv, info.d_head, shape_.n_layers, shape_.n_q,
        shape_.n_kv, shape_.d_head);
  }
  std::vector<Index> asked;
  for (const ReplayLayer& layer : layers) {
    // The others stay dense: nobody asks about them.
    if (!layer.window) asked.push_back(layer.layer);
  }
  run_->calibrate(*text, asked, pool);
}

AttentionQuestion ReplayRun::layer_call(const ReplayLayer& layer, TensorView<const float> q,
                                        Index n_keys) const {
  return {.layer = layer.layer,
          .q = q,
          .k = layer.k.view().range(1, 0, n_keys),
          .v = layer.v.view().range(1, 0, n_keys),
          .window = layer.window,
          .sink_logits = layer.sink_logits};
}

void ReplayRun::advance(const TraceSource& trace, const std::vector<ReplayLayer>& layers,
                        Index begin, const CallPlan& calls, Index n_prompt) {
  // A draft was asked about measured verifications alone: between them its method takes steps.
  const bool verifies = calls.phase == Phase::verify && !caps().needs_draft;
  const Index size = verifies ? calls.drafts : 1;
  // From here on a list may serve that is still in use at `begin`.
  const Index first_step = begin - begin % caps().steps_per_choice / size * size;
  while (run_->n_keys() < begin) {
    const Index from = run_->n_keys();
    const bool in_prompt = has_history_ && from < n_prompt;
    const bool is_step = has_history_ ? !in_prompt : from >= first_step;
    const bool is_asked = has_history_ || is_step;
    run_->set_open(is_asked);
    const bool is_block = is_step && verifies && (begin - from) % size == 0;
    Index n_tok = is_block ? size : 1;
    if (in_prompt) n_tok = std::min({begin - from, calls.chunk, n_prompt - from});
    if (!is_asked) n_tok = first_step - from;
    run_->begin_call(is_block ? Phase::verify : is_step ? Phase::decode : Phase::prefill, n_tok);
    for (const ReplayLayer& layer : layers) {
      if (layer.window) continue;
      if (is_asked) {
        const Tensor<float> q = read_queries(trace, layer.layer, {from, from + n_tok});
        LayerExtras extras;
        if (side_ && layer.trace)
          extras.side = side_->of(*layer.trace, layer.layer, {from, from + n_tok});
        run_->layer_call(layer_call(layer, q.view(), from + n_tok), extras);
      } else {
        const TensorView<const float> none(no_query_.data(),
                                           Shape{shape_.n_q, n_tok, shape_.d_head}, {0, 0, 1, 0});
        run_->layer_call(layer_call(layer, none, from + n_tok));
      }
    }
  }
  run_->set_open(true);
}

void ReplayRun::begin_call(Phase phase, TokenRange call,
                           std::span<const Tensor<float>> draft_rows) {
  run_->begin_call(phase, call.size(), draft_rows);
}

void ReplayRun::ask(const ReplayLayer& layer, TensorView<const float> q, TokenRange call,
                    ThreadPool* pool, SelectionTrace* looked_at) {
  LayerExtras extras{.pool = pool, .trace = looked_at};
  if (side_ && layer.trace) extras.side = side_->of(*layer.trace, layer.layer, call);
  selections_ = run_->layer_call(layer_call(layer, q, call.end), extras);
  costs_.clear();
  for (std::size_t i = 0; i < members_.size(); ++i) costs_.push_back(run_->cost(i));
}

std::vector<ReplayRun> make_runs(const std::vector<ReplayPair>& pairs, const AttentionShape& shape,
                                 std::optional<Index> dense_layers) {
  std::vector<std::vector<std::size_t>> groups;
  std::map<std::string, std::size_t> shared;  // text -> its group
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const MethodSpec& method = pairs[i].selector;
    const auto known = shared.find(method.text());
    if (known != shared.end()) {
      groups[known->second].push_back(i);
    } else {
      if (can_share_scoring(method.caps())) shared[method.text()] = groups.size();
      groups.push_back({i});
    }
  }
  std::vector<ReplayRun> runs;
  for (auto& group : groups) runs.emplace_back(pairs, std::move(group), shape, dense_layers);
  return runs;
}

}  // namespace kvscope

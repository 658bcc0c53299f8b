#include "core/model/transformer.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "core/model/layer_weights.hpp"

namespace kvscope {

namespace {

// One forward call: the diagram of a layer, on blocks of a backend.
class Forward {
 public:
  Forward(const ModelConfig& config, std::span<const float> sink_logits, BackendCall& backend,
          KvStore& store, Index n_tok, const ForwardOptions& options)
      : config_(config),
        sink_logits_(sink_logits),
        backend_(backend),
        store_(store),
        options_(options),
        pos_begin_(store.n_tokens()),
        n_tok_(n_tok),
        x_(backend.make_block(config.d_model)),
        normed_(backend.make_block(config.d_model)),
        branch_(backend.make_block(config.d_model)) {}

  Tensor<float> run(std::span<const TokenId> tokens) {
    backend_.embed(tokens, *x_);
    for (Index layer = 0; layer < config_.n_layers; ++layer) run_layer(layer);
    if (options_.logits == Logits::none) return {};
    const Index n_rows = options_.logits == Logits::all ? n_tok_ : 1;
    Tensor<float> logits = backend_.logits(*x_, n_rows);
    if (options_.observer != nullptr) {
      backend_.deliver();
      options_.observer->on_logits(pos_begin_ + n_tok_ - n_rows, logits.view());
    }
    return logits;
  }

  // Tells the policy about the layers whose plan the backend followed and that it does not know of.
  void tell_policy() {
    for (const Followed& one : followed_) {
      options_.policy->on_planned(one.shapes, one.plan,
                                  {[&] { return backend_.chosen_counts(one.shapes.layer); },
                                   [&] { return backend_.chosen_lists(); }});
    }
    followed_.clear();
  }

 private:
  struct Followed {
    AttentionQuestion shapes;
    ListPlan plan;
    ChosenAbout asked = ChosenAbout::nothing;
  };

  // x += out_norm(attention(in_norm(x))); x += out_norm(mlp(in_norm(x))), with the norms that the
  // plan has; in a parallel plan both see the same x.
  void run_layer(Index layer) {
    make_heads(config_.shape(layer));
    const Block& to_attention = normed(layer, NormAt::attention_in);
    backend_.project_qkv(layer, to_attention, *q_, *k_, *v_);
    backend_.position_and_append(layer, *q_, *k_, *v_);
    attend(layer);
    backend_.project_out(layer, *attended_, *branch_);
    if (!config_.plan.is_parallel) add_branch(layer, NormAt::attention_out);

    const Block& to_mlp = normed(layer, NormAt::mlp_in);
    if (config_.plan.is_parallel) add_branch(layer, NormAt::attention_out);
    if (config_.has_experts[static_cast<std::size_t>(layer)]) {
      const Routing routing = backend_.mix_experts(layer, to_mlp, *branch_);
      if (options_.observer != nullptr) {
        backend_.deliver();
        options_.observer->on_routing(
            {layer, pos_begin_, routing.expert.view(), routing.weight.view()});
      }
    } else {
      backend_.gated_mlp(layer, to_mlp, *branch_);
    }
    add_branch(layer, NormAt::mlp_out);
    backend_.end_layer(layer, *x_, *branch_);
  }

  // Blocks for the heads of a layer; those of the layer before it, where they are alike.
  void make_heads(const LayerShape& shape) {
    if (q_ != nullptr && shape.has_same_heads(heads_)) return;
    heads_ = shape;
    q_ = backend_.make_block(config_.n_q * shape.d_head);
    k_ = backend_.make_block(shape.n_kv * shape.d_head);
    v_ = backend_.make_block(shape.n_kv * shape.d_head);
    attended_ = backend_.make_block(config_.n_q * shape.d_head);
  }

  const Block& normed(Index layer, NormAt at) {
    if (!config_.plan.has_norm(at)) return *x_;
    backend_.norm(layer, at, *x_, *normed_);
    return *normed_;
  }

  void add_branch(Index layer, NormAt at) {
    if (config_.plan.has_norm(at)) backend_.norm(layer, at, *branch_, *branch_);
    backend_.add(*x_, *branch_);
  }

  void attend(Index layer) {
    AttentionPolicy* policy = options_.policy;
    if (policy != nullptr && !policy->takes(layer)) policy = nullptr;
    const bool watched = options_.observer != nullptr && options_.observer->wants(layer);
    TensorView<const float> q_rows;
    if (policy == nullptr) {
      timed(&ForwardTimes::attention_seconds, [&] { backend_.attend(layer, *q_, *attended_); });
    } else if (attend_by_plan(layer, *policy)) {
      // chosen and attended to
    } else if (const HostRows needed = policy->host_rows(layer);
               const RemoteRows* remote =
                   needed == HostRows::all ? nullptr : backend_.remote_rows(layer)) {
      AttentionQuestion shapes = shapes_of(layer);
      shapes.remote = remote;
      if (needed == HostRows::queries) shapes.q = q_rows = backend_.to_host_rows(*q_);
      attend_by_policy(shapes, *policy);
    } else {
      const bool gives_values =
          policy->reads_values() || (backend_.reads_host_values() && store_.dtype() == DType::f32);
      q_rows = backend_.to_host_rows(*q_);
      attend_by_policy(question(layer, q_rows, gives_values), *policy);
    }
    if (watched && !hand_out(layer))
      notify(layer, q_rows.empty() ? backend_.to_host_rows(*q_) : q_rows);
    if (!followed_.empty() && followed_.back().asked == ChosenAbout::lists) tell_policy();
  }

  // True if the observer gets this layer's rows from the backend, sooner or later.
  bool hand_out(Index layer) {
    Observer& observer = *options_.observer;
    const std::optional<DType> dtype = observer.rows_dtype(layer);
    return dtype && backend_.hand_out(layer, *dtype,
                                      [&](const RowsEvent& event) { observer.on_rows(event); });
  }

  // True if the backend followed the policy's plan by itself.
  bool attend_by_plan(Index layer, AttentionPolicy& policy) {
    const std::optional<ListPlan> plan = policy.plan(layer);
    if (!plan) return false;
    if (plan->by == ListPlan::By::nothing) {
      timed(&ForwardTimes::attention_seconds, [&] { backend_.attend(layer, *q_, *attended_); });
    } else {
      bool takes = false;
      timed(&ForwardTimes::selection_seconds, [&] { takes = backend_.choose(layer, *plan, *q_); });
      if (!takes) return false;
      timed(&ForwardTimes::attention_seconds,
            [&] { backend_.attend_chosen(layer, *q_, *attended_); });
    }
    const ChosenAbout asked = policy.asks(*plan);
    if (asked == ChosenAbout::counts) backend_.count_chosen(layer);
    followed_.push_back({shapes_of(layer), *plan, asked});
    if (followed_.size() == 1 && asked == ChosenAbout::nothing) tell_policy();
    return true;
  }

  // The policy says which keys, the rest is as in every layer.
  void attend_by_policy(const AttentionQuestion& question, AttentionPolicy& policy) {
    tell_policy();
    const Selection* selection = nullptr;
    timed(&ForwardTimes::selection_seconds, [&] { selection = &policy.choose(question); });
    timed(&ForwardTimes::attention_seconds, [&] {
      if (selection->is_dense) {
        backend_.attend(question.layer, *q_, *attended_);
      } else {
        backend_.attend_lists(question, *selection, *q_, *attended_);
      }
    });
    policy.on_attended(question, *selection);
  }

  AttentionQuestion question(Index layer, TensorView<const float> q_rows, bool gives_values) const {
    const Index n_ctx = pos_begin_ + n_tok_;
    AttentionQuestion question = question_of(layer);
    question.q = q_rows;
    question.k = store_.host_k(layer, 0, n_ctx);
    if (gives_values) question.v = store_.host_v(layer, 0, n_ctx);
    return question;
  }

  // With shapes, and no data.
  AttentionQuestion shapes_of(Index layer) const {
    AttentionQuestion question = question_of(layer);
    question.q = {nullptr, Shape{config_.n_q, n_tok_, heads_.d_head}};
    question.k = {nullptr, Shape{heads_.n_kv, pos_begin_ + n_tok_, heads_.d_head}};
    question.v = question.k;
    return question;
  }

  // Without tensors.
  AttentionQuestion question_of(Index layer) const {
    AttentionQuestion question;
    question.layer = layer;
    question.pos_begin = pos_begin_;
    question.n_tok = n_tok_;
    question.score_scale = heads_.score_scale;
    question.score_cap = heads_.score_cap;
    question.window = config_.window[static_cast<std::size_t>(layer)];
    if (!sink_logits_.empty()) {
      question.sink_logits = sink_logits_.subspan(static_cast<std::size_t>(layer * config_.n_q),
                                                  static_cast<std::size_t>(config_.n_q));
    }
    return question;
  }

  void notify(Index layer, TensorView<const float> q_rows) {
    const Index n_ctx = pos_begin_ + n_tok_;
    AttentionEvent event;
    event.layer = layer;
    event.pos_begin = pos_begin_;
    event.n_tok = n_tok_;
    event.score_scale = heads_.score_scale;
    event.score_cap = heads_.score_cap;
    event.q = q_rows;
    event.lse = backend_.host_lse();
    event.k_cache = store_.host_k(layer, 0, n_ctx);
    event.v_cache = store_.host_v(layer, 0, n_ctx);
    event.k = event.k_cache.range(1, pos_begin_, n_ctx);
    event.v = event.v_cache.range(1, pos_begin_, n_ctx);
    options_.observer->on_attention(event);
  }

  template <class Work>
  void timed(double ForwardTimes::*seconds, const Work& work) {
    if (options_.times == nullptr) return work();
    backend_.start_clock();
    work();
    backend_.stop_clock(options_.times->*seconds);
  }

  const ModelConfig& config_;
  std::span<const float> sink_logits_;  // [n_layers * n_q] or empty
  BackendCall& backend_;
  KvStore& store_;
  const ForwardOptions& options_;
  Index pos_begin_;
  Index n_tok_;
  std::unique_ptr<Block> x_;                // residual stream
  std::unique_ptr<Block> normed_, branch_;  // what goes into a sublayer, and what it adds to x
  LayerShape heads_;                        // of the layer that runs
  std::unique_ptr<Block> q_, k_, v_, attended_;
  std::vector<Followed> followed_;
};

}  // namespace

struct Transformer::Impl {
  ModelConfig config;
  WeightFiles files;
  ModelWeights weights;
  std::vector<float> sink_logits;
  std::unique_ptr<Backend> backend;

  Impl(ModelConfig c, WeightFiles f, const BackendFactory& make_backend, Kept copies)
      : config(std::move(c)),
        files(std::move(f)),
        weights(collect_weights(config, files, copies)),
        backend(make_backend(config, weights)) {
    for (const LayerWeights& layer : weights.layers) {
      sink_logits.insert(sink_logits.end(), layer.sink_logits.flat().begin(),
                         layer.sink_logits.flat().end());
    }
  }
};

Transformer Transformer::load(const std::filesystem::path& model_dir, const BackendFactory& backend,
                              Kept copies) {
  ModelConfig config = load_model_config(model_dir);
  refuse_quantization(config);
  return Transformer(std::move(config), WeightFiles::open(model_dir), backend, copies);
}

Transformer::Transformer(ModelConfig config, WeightFiles weights, const BackendFactory& backend,
                         Kept copies)
    : impl_(std::make_unique<Impl>(std::move(config), std::move(weights), backend, copies)) {}
Transformer::Transformer(Transformer&&) noexcept = default;
Transformer& Transformer::operator=(Transformer&&) noexcept = default;
Transformer::~Transformer() = default;

const ModelConfig& Transformer::config() const {
  return impl_->config;
}
const WeightFiles& Transformer::weights() const {
  return impl_->files;
}

const Matrix& Transformer::output_matrix(Index layer) const {
  return impl_->weights.layers[static_cast<std::size_t>(layer)].o;
}
const Backend& Transformer::backend() const {
  return *impl_->backend;
}
std::unique_ptr<KvStore> Transformer::make_store(Index capacity) const {
  return impl_->backend->make_store(capacity);
}
std::vector<float> Transformer::sink_logits() const {
  return impl_->sink_logits;
}

Tensor<float> Transformer::forward(std::span<const TokenId> tokens, KvStore& cache,
                                   ThreadPool& pool, const ForwardOptions& options) const {
  const ModelConfig& config = impl_->config;
  const Index n_tok = static_cast<Index>(tokens.size());
  const Index pos_begin = cache.n_tokens();
  if (n_tok == 0) throw ConfigError("forward: expected at least one token, found none");
  if (pos_begin + n_tok > cache.capacity()) {
    throw ConfigError("context full: {} tokens are cached and {} more do not fit into {}",
                      pos_begin, n_tok, cache.capacity());
  }
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= config.n_vocab) {
      throw ConfigError("token {} at position {}: expected an id in [0, {})", tokens[i],
                        pos_begin + static_cast<Index>(i), config.n_vocab);
    }
  }

  const auto call = impl_->backend->begin(n_tok, cache, pool);
  Forward pass(config, impl_->sink_logits, *call, cache, n_tok, options);
  Tensor<float> logits = pass.run(tokens);
  call->finish();
  pass.tell_policy();
  cache.advance(n_tok);
  return logits;
}

TokenId argmax(std::span<const float> values) {
  return static_cast<TokenId>(std::max_element(values.begin(), values.end()) - values.begin());
}

}  // namespace kvscope

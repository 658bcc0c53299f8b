#include "core/model/transformer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/attention/dense_attention.hpp"
#include "core/attention/sparse_attention.hpp"
#include "core/base/error.hpp"
#include "core/base/stopwatch.hpp"
#include "core/model/layer_weights.hpp"
#include "core/model/linear.hpp"
#include "core/model/moe.hpp"
#include "core/model/rope.hpp"
#include "core/tensor/lane_kernels.hpp"

namespace kvscope {

namespace {

// The activations of one forward call. All but lse are lane blocks: [n_blocks, features, lanes].
struct Activations {
  Index pos_begin;
  Index n_tok;
  Index lanes;
  Index n_blocks;
  Tensor<float> x;         // [n_blocks, d_model, lanes] residual stream
  Tensor<float> normed;    // [n_blocks, d_model, lanes]
  Tensor<float> q;         // [n_blocks, n_q * d_head, lanes]
  Tensor<float> k, v;      // [n_blocks, n_kv * d_head, lanes]
  Tensor<float> attended;  // [n_blocks, n_q * d_head, lanes]
  Tensor<float> gate, up;  // [n_blocks, d_ff, lanes]; empty if every layer has experts
  Tensor<float> branch;    // [n_blocks, d_model, lanes] what a sublayer adds to x
  Tensor<float> cos, sin;  // [n_blocks, d_head / 2, lanes]
  Tensor<float> lse;       // [n_q, n_tok]
  Tensor<float> q_rows;    // [n_q, n_tok, d_head] for observers and policies, made when first needed

  Activations(const ModelConfig& c, Index pos, Index n)
      : pos_begin(pos),
        n_tok(n),
        lanes(n > kNarrowLanes ? kWideLanes : kNarrowLanes),
        n_blocks((n + lanes - 1) / lanes) {
    const auto block = [&](Index features) {
      return Tensor<float>::uninitialized({n_blocks, features, lanes});
    };
    x = block(c.d_model);
    normed = block(c.d_model);
    q = block(c.n_q * c.d_head);
    k = block(c.n_kv * c.d_head);
    v = block(c.n_kv * c.d_head);
    attended = Tensor<float>({n_blocks, c.n_q * c.d_head, lanes});  // spare lanes stay finite
    if (std::find(c.has_experts.begin(), c.has_experts.end(), false) != c.has_experts.end()) {
      gate = block(c.d_ff);
      up = block(c.d_ff);
    }
    branch = block(c.d_model);
    cos = block(c.d_head / 2);
    sin = block(c.d_head / 2);
    lse = Tensor<float>::uninitialized({c.n_q, n});
  }

  Index first_token(Index block) const { return block * lanes; }
  Index tokens_in(Index block) const { return std::min(lanes, n_tok - first_token(block)); }
};

bool all_finite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
}

[[noreturn]] void throw_not_finite(std::string_view what, Index layer, Index pos) {
  throw FormatError(fmt::format(
      "layer {}: NaN or infinity in {} at position {}: the weights are damaged or overflow in float32",
      layer, what, pos));
}

}  // namespace

struct Transformer::Impl {
  ModelConfig config;
  WeightFiles files;
  ModelWeights weights;
  std::vector<float> frequencies;

  Impl(ModelConfig c, WeightFiles f)
      : config(std::move(c)),
        files(std::move(f)),
        weights(collect_weights(config, files)),
        frequencies(rope_frequencies(config.rope, config.d_head)) {}

  const Matrix& lm_head() const {
    return config.tied_embeddings ? weights.embedding : weights.lm_head;
  }

  void embed(std::span<const TokenId> tokens, Activations& a, ThreadPool& pool) const {
    const Index d = config.d_model;
    pool.parallel_for(a.n_blocks, [&](Index block, int) {
      std::vector<float> scratch(static_cast<std::size_t>(d + 16));
      float* x = a.x.sub(block).data();
      std::fill_n(x, d * a.lanes, 0.0f);
      for (Index t = 0; t < a.tokens_in(block); ++t) {
        const Index id = tokens[static_cast<std::size_t>(a.first_token(block) + t)];
        Index stride = 0;
        const float* row = weights.embedding.rows(id, id + 1, scratch.data(), stride);
        for (Index f = 0; f < d; ++f) x[f * a.lanes + t] = row[f];
      }
      rope_tables(frequencies, static_cast<float>(config.rope.amplitude),
                  a.pos_begin + a.first_token(block), a.tokens_in(block), a.lanes,
                  a.cos.sub(block).data(), a.sin.sub(block).data());
    });
  }

  void normalize(const Tensor<float>& x, const Tensor<float>& weight, Tensor<float>& y,
                 const Activations& a, ThreadPool& pool) const {
    pool.parallel_for(a.n_blocks, [&](Index block, int) {
      lane_rms_norm(x.sub(block).data(), weight.data(), config.d_model,
                    static_cast<float>(config.rms_eps), y.sub(block).data(), a.lanes);
    });
  }

  // QK-norm and, if the layer has it, RoPE of every head of a lane block, in place. x [n_heads *
  // d_head, lanes].
  void position(Index layer, float* x, Index n_heads, const Tensor<float>& norm,
                const Activations& a, Index block) const {
    for (Index h = 0; h < n_heads; ++h) {
      float* head = x + h * config.d_head * a.lanes;
      if (norm.count() > 0) {
        lane_rms_norm(head, norm.data(), config.d_head, static_cast<float>(config.rms_eps), head,
                      a.lanes);
      }
      if (!config.has_rope[static_cast<std::size_t>(layer)]) continue;
      lane_rope(head, a.cos.sub(block).data(), a.sin.sub(block).data(), config.d_head, a.lanes);
    }
  }

  void append_to_cache(Index layer, const Activations& a, KvCache& cache, Index block) const {
    const Index first = a.pos_begin + a.first_token(block);
    const Index n = a.tokens_in(block);
    const Index d = config.d_head;
    const auto store = [&](const Tensor<float>& lanes, TensorView<float> rows, const char* what) {
      for (Index h = 0; h < config.n_kv; ++h) {
        float* dst = &rows(h, first, Index{0});
        rows_from_lanes(lanes.sub(block).data() + h * d * a.lanes, d, a.lanes, n, dst, d);
        for (Index t = 0; t < n; ++t) {
          if (!all_finite({dst + t * d, static_cast<std::size_t>(d)})) {
            throw_not_finite(what, layer, first + t);
          }
        }
      }
    };
    store(a.k, cache.k(layer), "the keys");
    store(a.v, cache.v(layer), "the values");
  }

  // q, k, v of the chunk; keys and values go to the cache.
  void project(Index layer, Activations& a, KvCache& cache, ThreadPool& pool) const {
    const LayerWeights& w = weights.layers[static_cast<std::size_t>(layer)];
    const LaneShape shape{a.n_blocks, a.lanes};
    linear({{&w.q, &w.q_bias, a.q.data()}, {&w.k, &w.k_bias, a.k.data()}, {&w.v, &w.v_bias, a.v.data()}},
           a.normed.data(), shape, pool);
    pool.parallel_for(a.n_blocks, [&](Index block, int) {
      position(layer, a.q.sub(block).data(), config.n_q, w.q_norm, a, block);
      position(layer, a.k.sub(block).data(), config.n_kv, w.k_norm, a, block);
      append_to_cache(layer, a, cache, block);
    });
  }

  void make_q_rows(Activations& a, ThreadPool& pool) const {
    const Index d = config.d_head;
    if (a.q_rows.count() == 0) {
      a.q_rows = Tensor<float>::uninitialized({config.n_q, a.n_tok, d});
    }
    pool.parallel_for(a.n_blocks, [&](Index block, int) {
      for (Index h = 0; h < config.n_q; ++h) {
        rows_from_lanes(a.q.sub(block).data() + h * d * a.lanes, d, a.lanes, a.tokens_in(block),
                        &a.q_rows(h, a.first_token(block), Index{0}), d);
      }
    });
  }

  AttentionQuestion question(Index layer, const Activations& a, const KvCache& cache) const {
    const Index n_ctx = a.pos_begin + a.n_tok;
    AttentionQuestion question;
    question.layer = layer;
    question.pos_begin = a.pos_begin;
    question.n_tok = a.n_tok;
    question.score_scale = config.score_scale();
    question.window = config.window[static_cast<std::size_t>(layer)];
    question.q = a.q_rows.view();
    question.k = cache.k(layer).range(1, 0, n_ctx);
    question.v = cache.v(layer).range(1, 0, n_ctx);
    question.sinks = weights.layers[static_cast<std::size_t>(layer)].sinks.flat();
    return question;
  }

  void attend_densely(Index layer, Activations& a, const KvCache& cache, ThreadPool& pool) const {
    LaneAttentionCall call;
    call.pos_begin = a.pos_begin;
    call.n_tok = a.n_tok;
    call.lanes = a.lanes;
    call.score_scale = config.score_scale();
    call.window = config.window[static_cast<std::size_t>(layer)];
    call.n_q = config.n_q;
    call.sinks = weights.layers[static_cast<std::size_t>(layer)].sinks.flat();
    call.k = cache.k(layer);
    call.v = cache.v(layer);
    call.q_lanes = a.q.data();
    call.out_lanes = a.attended.data();
    call.lse = a.lse.view();
    attend_lanes(call, pool);
  }

  // The policy says which keys, the rest is as in every layer.
  void attend_by_policy(Index layer, AttentionPolicy& policy, Activations& a, const KvCache& cache,
                        ThreadPool& pool, ForwardTimes& times) const {
    const AttentionQuestion asked = question(layer, a, cache);
    const Stopwatch choosing;
    const Selection& selection = policy.choose(asked);
    times.selection_seconds += choosing.seconds();
    const Stopwatch attending;
    if (selection.is_dense) {
      attend_densely(layer, a, cache, pool);
    } else {
      attend_lists(asked, selection, {a.lanes, a.attended.data(), a.lse.view()}, pool);
    }
    times.attention_seconds += attending.seconds();
    policy.on_attended(asked, selection);
  }

  void attend(Index layer, Activations& a, const KvCache& cache, ThreadPool& pool,
              const ForwardOptions& options, ForwardTimes& times) const {
    const bool by_policy = options.policy != nullptr && options.policy->takes(layer);
    const bool watched = options.observer != nullptr && options.observer->wants(layer);
    if (by_policy || watched) make_q_rows(a, pool);
    if (by_policy) {
      attend_by_policy(layer, *options.policy, a, cache, pool, times);
    } else {
      const Stopwatch attending;
      attend_densely(layer, a, cache, pool);
      times.attention_seconds += attending.seconds();
    }
    for (Index h = 0; h < config.n_q; ++h) {
      for (Index t = 0; t < a.n_tok; ++t) {
        const float lse = a.lse(h, t);
        const bool sees_nothing = by_policy && lse == -std::numeric_limits<float>::infinity();
        if (!std::isfinite(lse) && !sees_nothing) throw_not_finite("the attention scores", layer, a.pos_begin + t);
      }
    }
    if (watched) notify(layer, a, cache, *options.observer);
  }

  void notify(Index layer, const Activations& a, const KvCache& cache, Observer& observer) const {
    const Index n_ctx = a.pos_begin + a.n_tok;
    AttentionEvent event;
    event.layer = layer;
    event.pos_begin = a.pos_begin;
    event.n_tok = a.n_tok;
    event.score_scale = config.score_scale();
    event.q = a.q_rows.view();
    event.k = cache.k(layer).range(1, a.pos_begin, n_ctx);
    event.v = cache.v(layer).range(1, a.pos_begin, n_ctx);
    event.lse = a.lse.view();
    event.k_cache = cache.k(layer).range(1, 0, n_ctx);
    event.v_cache = cache.v(layer).range(1, 0, n_ctx);
    observer.on_attention(event);
  }

  void add_branch(Activations& a, ThreadPool& pool) const {
    pool.parallel_for(a.n_blocks, [&](Index block, int) {
      lane_add(a.x.sub(block).data(), a.branch.sub(block).data(), config.d_model * a.lanes);
    });
  }

  // branch = down(silu(gate(normed)) * up(normed))
  void dense_mlp(const LayerWeights& w, Activations& a, ThreadPool& pool) const {
    const LaneShape shape{a.n_blocks, a.lanes};
    linear({{&w.gate, &w.gate_bias, a.gate.data()}, {&w.up, &w.up_bias, a.up.data()}},
           a.normed.data(), shape, pool);
    pool.parallel_for(a.n_blocks, [&](Index block, int) {
      lane_swiglu(a.gate.sub(block).data(), a.up.sub(block).data(), config.d_ff * a.lanes);
    });
    linear({{&w.down, &w.down_bias, a.branch.data()}}, a.gate.data(), shape, pool);
  }

  // One transformer layer: x += attention(norm(x)); x += mlp(norm(x)).
  void layer_forward(Index layer, Activations& a, KvCache& cache, ThreadPool& pool,
                     const ForwardOptions& options, ForwardTimes& times) const {
    const LayerWeights& w = weights.layers[static_cast<std::size_t>(layer)];
    const LaneShape shape{a.n_blocks, a.lanes};

    normalize(a.x, w.attention_norm, a.normed, a, pool);
    project(layer, a, cache, pool);
    attend(layer, a, cache, pool, options, times);
    linear({{&w.o, &w.o_bias, a.branch.data()}}, a.attended.data(), shape, pool);
    add_branch(a, pool);

    normalize(a.x, w.mlp_norm, a.normed, a, pool);
    if (w.moe.experts.empty()) {
      dense_mlp(w, a, pool);
    } else {
      const Routing routing =
          mix_experts(config.moe, w.moe, a.normed.data(), a.branch.data(), a.n_tok, shape, pool);
      if (options.observer != nullptr) {
        options.observer->on_routing(
            {layer, a.pos_begin, routing.expert.view(), routing.weight.view()});
      }
    }
    add_branch(a, pool);
  }

  // Logits of the call's last n_rows tokens. [n_rows, n_vocab]
  Tensor<float> logits(Activations& a, Index n_rows, ThreadPool& pool) const {
    const Index d = config.d_model;
    Activations* source = &a;
    std::optional<Activations> last;  // a narrow block that holds the last token alone
    if (n_rows < a.n_tok) {
      last.emplace(config, a.pos_begin + a.n_tok - 1, 1);
      std::fill_n(last->x.data(), last->x.count(), 0.0f);
      const Index t = a.n_tok - 1;
      const auto from = a.x.sub(t / a.lanes);
      for (Index f = 0; f < d; ++f) last->x(Index{0}, f, Index{0}) = from(f, t % a.lanes);
      source = &*last;
    }
    normalize(source->x, weights.final_norm, source->normed, *source, pool);
    auto out = Tensor<float>::uninitialized({n_rows, config.n_vocab});
    linear_to_rows(lm_head(), source->normed.data(), {source->n_blocks, source->lanes}, out.view(), pool);
    for (Index t = 0; t < n_rows; ++t) {
      if (!all_finite(out.view().row(t))) {
        throw_not_finite("the logits", config.n_layers, a.pos_begin + a.n_tok - n_rows + t);
      }
    }
    return out;
  }
};

Transformer Transformer::load(const std::filesystem::path& model_dir) {
  ModelConfig config = load_model_config(model_dir);
  refuse_quantization(config);
  return Transformer(std::move(config), WeightFiles::open(model_dir));
}

Transformer::Transformer(ModelConfig config, WeightFiles weights)
    : impl_(std::make_unique<Impl>(std::move(config), std::move(weights))) {}
Transformer::Transformer(Transformer&&) noexcept = default;
Transformer& Transformer::operator=(Transformer&&) noexcept = default;
Transformer::~Transformer() = default;

const ModelConfig& Transformer::config() const { return impl_->config; }
const WeightFiles& Transformer::weights() const { return impl_->files; }

std::vector<float> Transformer::sinks() const {
  std::vector<float> all;
  for (const LayerWeights& layer : impl_->weights.layers) {
    all.insert(all.end(), layer.sinks.flat().begin(), layer.sinks.flat().end());
  }
  return all;
}

Tensor<float> Transformer::forward(std::span<const TokenId> tokens, KvCache& cache,
                                   ThreadPool& pool, const ForwardOptions& options) const {
  const ModelConfig& config = impl_->config;
  const Index n_tok = static_cast<Index>(tokens.size());
  const Index pos_begin = cache.n_tokens();
  if (n_tok == 0) throw ConfigError("forward: expected at least one token, found none");
  if (pos_begin + n_tok > cache.capacity()) {
    throw ConfigError(fmt::format("context full: {} tokens are cached and {} more do not fit into {}",
                                  pos_begin, n_tok, cache.capacity()));
  }
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= config.n_vocab) {
      throw ConfigError(fmt::format("token {} at position {}: expected an id in [0, {})", tokens[i],
                                    pos_begin + static_cast<Index>(i), config.n_vocab));
    }
  }

  ForwardTimes unasked;
  ForwardTimes& times = options.times != nullptr ? *options.times : unasked;
  Activations a(config, pos_begin, n_tok);
  impl_->embed(tokens, a, pool);
  for (Index layer = 0; layer < config.n_layers; ++layer) {
    impl_->layer_forward(layer, a, cache, pool, options, times);
  }
  Tensor<float> logits;
  if (options.logits != Logits::none) {
    const Index n_rows = options.logits == Logits::all ? n_tok : 1;
    logits = impl_->logits(a, n_rows, pool);
    if (options.observer != nullptr) {
      options.observer->on_logits(pos_begin + n_tok - n_rows, logits.view());
    }
  }
  if (options.observer != nullptr) options.observer->on_call_end(pos_begin, n_tok);
  cache.advance(n_tok);
  return logits;
}

TokenId argmax(std::span<const float> values) {
  return static_cast<TokenId>(std::max_element(values.begin(), values.end()) - values.begin());
}

}  // namespace kvscope

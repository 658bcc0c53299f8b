// The lane backend: activations are [n_blocks, features, lanes], 16 or 32 tokens side by side, so
// that every kernel treats a token alone and in one fixed order.
#include <algorithm>
#include <cmath>
#include <concepts>
#include <limits>
#include <numbers>

#include "core/attention/dense_attention.hpp"
#include "core/attention/sparse_attention.hpp"
#include "core/base/error.hpp"
#include "core/base/host_memory.hpp"
#include "core/model/backend.hpp"
#include "core/model/kv_cache.hpp"
#include "core/model/linear.hpp"
#include "core/model/moe.hpp"
#include "core/model/rope.hpp"
#include "core/tensor/dtype.hpp"
#include "core/tensor/lane_kernels.hpp"

namespace kvscope {

namespace {

const Tensor<float> kNoBias;

struct LaneBlock final : Block {
  Tensor<float> values;  // [n_blocks, n_features, lanes]
};

Tensor<float>& of(Block& block) {
  return static_cast<LaneBlock&>(block).values;
}
const Tensor<float>& of(const Block& block) {
  return static_cast<const LaneBlock&>(block).values;
}

bool all_finite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
}

// A model as this backend holds it.
struct LaneModel {
  const ModelConfig& config;
  const ModelWeights& weights;
  LaneOptions options;
  Matmul half_matmul = Matmul::bf16_portable;  // of attention to keys in bf16

  const LayerWeights& layer(Index i) const { return weights.layers[static_cast<std::size_t>(i)]; }
  const Matrix& lm_head() const {
    return weights.lm_head.n_rows() == 0 ? weights.embedding : weights.lm_head;
  }
};

// Cosines and sines of a call's positions. [n_blocks, n_pairs, lanes]
struct RopeTables {
  Tensor<float> cos, sin;
};

class LaneCall final : public BackendCall {
 public:
  LaneCall(const LaneModel& model, Index n_tok, KvCache& cache, ListMemory& lists, ThreadPool& pool)
      : model_(model),
        config_(model.config),
        cache_(cache),
        lists_(lists),
        pool_(pool),
        pos_begin_(cache.n_tokens()),
        n_tok_(n_tok) {
    shape_.lanes = n_tok > kNarrowLanes ? kWideLanes : kNarrowLanes;
    shape_.n_blocks = (n_tok + shape_.lanes - 1) / shape_.lanes;
    shape_.n_tok = n_tok;
    lse_ = Tensor<float>::uninitialized({config_.n_q, n_tok});
    rope_ = make_tables(config_.rope);
    if (config_.local_rope) local_rope_ = make_tables(*config_.local_rope);
  }

  std::unique_ptr<Block> make_block(Index n_features) override {
    auto block = std::make_unique<LaneBlock>();
    // Zeros: spare lanes stay finite.
    block->values = Tensor<float>({shape_.n_blocks, n_features, shape_.lanes});
    return block;
  }

  void embed(std::span<const TokenId> tokens, Block& x) override {
    look_up(model_.weights.embedding, config_.plan.embedding_scale, tokens, of(x));
    if (config_.d_layer_input > 0) make_layer_inputs(tokens, of(x));
  }

  void norm(Index layer, NormAt at, const Block& x, Block& y) override {
    normalize(of(x), model_.layer(layer).norm(at), model_.layer(layer).norm_bias(at), of(y));
  }

  void project_qkv(Index layer, const Block& x, Block& q, Block& k, Block& v) override {
    const LayerWeights& w = model_.layer(layer);
    if (!config_.layer_shapes.empty()) {
      project_apart(layer, of(x), of(q), of(k), of(v));
      return;
    }
    if (config_.plan.fused_by_head) {
      project_fused(w, x, {&of(q), &of(k), &of(v)});
      return;
    }
    linear({{&w.q, &w.q_bias, of(q).data()},
            {&w.k, &w.k_bias, of(k).data()},
            {&w.v, &w.v_bias, of(v).data()}},
           of(x).data(), shape_, pool_, model_.options.matmul);
  }

  void position_and_append(Index layer, Block& q, Block& k, const Block& v) override {
    const LayerWeights& w = model_.layer(layer);
    const LayerShape heads = config_.shape(layer);
    const bool has_halves = cache_.dtype() == DType::bf16;
    if (heads.keys_of >= 0) {
      for_each_block([&](Index block) {
        position(layer, of(q).sub(block).data(), config_.n_q, w.q_norm, block);
      });
      return;
    }
    TensorView<std::uint16_t> k_halves, v_halves;
    if (has_halves) {
      k_halves = cache_.k_halves_from(layer, pos_begin_);
      v_halves = cache_.v_halves_from(layer, pos_begin_);
    }
    for_each_block([&](Index block) {
      position(layer, of(q).sub(block).data(), config_.n_q, w.q_norm, block);
      position(layer, of(k).sub(block).data(), heads.n_kv, w.k_norm, block);
      if (has_halves) {
        append(of(k), k_halves, layer, "the keys", block);
        append(of(v), v_halves, layer, "the values", block);
      } else {
        append(of(k), cache_.k(layer), layer, "the keys", block);
        append(of(v), cache_.v(layer), layer, "the values", block);
      }
    });
  }

  void attend(Index layer, const Block& q, Block& out) override {
    const LayerShape heads = config_.shape(layer);
    LaneAttentionCall call;
    call.pos_begin = pos_begin_;
    call.n_tok = n_tok_;
    call.lanes = shape_.lanes;
    call.score_scale = heads.score_scale;
    call.score_cap = heads.score_cap;
    call.window = config_.window[static_cast<std::size_t>(layer)];
    call.n_q = config_.n_q;
    call.sink_logits = model_.layer(layer).sink_logits.flat();
    call.halves = halves(layer);
    if (!call.halves) {
      call.k = std::as_const(cache_).k(layer);
      call.v = std::as_const(cache_).v(layer);
    }
    call.q_lanes = of(q).data();
    call.out_lanes = of(out).data();
    call.lse = lse_.view();
    attend_lanes(call, pool_);
    check_lse(layer, /*may_see_nothing=*/false);
  }

  void attend_lists(const AttentionQuestion& question, const Selection& selection, const Block&,
                    Block& out) override {
    const AttentionLanes answer{shape_.lanes, of(out).data(), lse_.view()};
    kvscope::attend_lists(question, selection, answer, pool_, halves(question.layer), &lists_);
    check_lse(question.layer, /*may_see_nothing=*/true);
  }

  void project_out(Index layer, const Block& x, Block& y) override {
    const LayerWeights& w = model_.layer(layer);
    linear({{&w.o, &w.o_bias, of(y).data()}}, of(x).data(), shape_, pool_, model_.options.matmul);
  }

  void gated_mlp(Index layer, const Block& x, Block& y) override {
    const LayerWeights& w = model_.layer(layer);
    const Index d_ff = config_.ff_width(layer);
    if (gate_.count() == 0 || gate_.dim(1) != d_ff) {
      gate_ = Tensor<float>::uninitialized({shape_.n_blocks, d_ff, shape_.lanes});
      up_ = Tensor<float>::uninitialized({shape_.n_blocks, d_ff, shape_.lanes});
    }
    if (!config_.plan.is_gated) {
      linear({{&w.up, &w.up_bias, up_.data()}}, of(x).data(), shape_, pool_, model_.options.matmul);
      for_each_block([&](Index block) { lane_gelu(up_.sub(block).data(), d_ff * shape_.lanes); });
      linear({{&w.down, &w.down_bias, of(y).data()}}, up_.data(), shape_, pool_,
             model_.options.matmul);
      return;
    }
    linear({{&w.gate, &w.gate_bias, gate_.data()}, {&w.up, &w.up_bias, up_.data()}}, of(x).data(),
           shape_, pool_, model_.options.matmul);
    for_each_block([&](Index block) {
      float* gate = gate_.sub(block).data();
      const float* up = up_.sub(block).data();
      if (config_.plan.activation == LayerPlan::Activation::silu) {
        lane_swiglu(gate, up, d_ff * shape_.lanes);
      } else {
        lane_gelu_gate(gate, up, d_ff * shape_.lanes);
      }
    });
    linear({{&w.down, &w.down_bias, of(y).data()}}, gate_.data(), shape_, pool_,
           model_.options.matmul);
  }

  Routing mix_experts(Index layer, const Block& x, Block& y) override {
    return kvscope::mix_experts(config_.moe, model_.layer(layer).moe, of(x).data(), of(y).data(),
                                n_tok_, shape_, pool_, model_.options.matmul);
  }

  void add(Block& x, const Block& y) override {
    for_each_block([&](Index block) {
      lane_add(of(x).sub(block).data(), of(y).sub(block).data(), config_.d_model * shape_.lanes);
    });
  }

  void end_layer(Index layer, Block& x, Block& branch) override {
    const LayerWeights& w = model_.layer(layer);
    if (const Index d = config_.d_layer_input; d > 0) {
      linear({{&w.input_gate, &kNoBias, input_gate_.data()}}, of(x).data(), shape_, pool_,
             model_.options.matmul);
      for_each_block([&](Index block) {
        lane_gelu_gate(input_gate_.sub(block).data(),
                       layer_inputs_.sub(block).data() + layer * d * shape_.lanes,
                       d * shape_.lanes);
      });
      linear({{&w.input_projection, &kNoBias, of(branch).data()}}, input_gate_.data(), shape_,
             pool_, model_.options.matmul);
      normalize(of(branch), w.input_norm, {}, of(branch));
      add(x, branch);
    }
    if (w.output_scale != 1.0f)
      for (float& value : of(x).flat()) value *= w.output_scale;
  }

  Tensor<float> logits(const Block& x, Index n_rows) override {
    // All tokens, or the last one in a narrow block of its own.
    const LaneShape shape = n_rows == n_tok_ ? shape_ : LaneShape{1, kNarrowLanes, 1};
    Tensor<float> normed({shape.n_blocks, config_.d_model, shape.lanes});
    if (n_rows == n_tok_) {
      normalize(of(x), model_.weights.final_norm, model_.weights.final_norm_bias, normed);
    } else {
      const Index t = n_tok_ - 1;
      const auto from = of(x).sub(t / shape_.lanes);
      for (Index f = 0; f < config_.d_model; ++f) {
        normed(Index{0}, f, Index{0}) = from(f, t % shape_.lanes);
      }
      normalize(normed, model_.weights.final_norm, model_.weights.final_norm_bias, normed);
    }
    auto out = Tensor<float>::uninitialized({n_rows, config_.n_vocab});
    linear_to_rows(model_.lm_head(), normed.data(), shape, out.view(), pool_,
                   model_.options.matmul);
    const auto cap = static_cast<float>(config_.plan.logit_softcap);
    for (Index t = 0; t < n_rows; ++t) {
      const auto row = out.view().row(t);
      if (!all_finite(row)) {
        throw_not_finite("the logits", config_.n_layers, pos_begin_ + n_tok_ - n_rows + t);
      }
      if (cap > 0.0f) {
        for (float& value : row) value = cap * std::tanh(value / cap);
      }
    }
    return out;
  }

  TensorView<const float> to_host_rows(const Block& q) override {
    const Index d = of(q).dim(1) / config_.n_q;
    if (q_rows_.count() == 0 || q_rows_.dim(2) != d) {
      q_rows_ = Tensor<float>::uninitialized({config_.n_q, n_tok_, d});
    }
    for_each_block([&](Index block) {
      for (Index h = 0; h < config_.n_q; ++h) {
        rows_from_lanes(of(q).sub(block).data() + h * d * shape_.lanes, d, shape_.lanes,
                        tokens_in(block), &q_rows_(h, first_token(block), Index{0}), d);
      }
    });
    return q_rows_.view();
  }

  TensorView<const float> host_lse() override { return lse_.view(); }

 private:
  Index first_token(Index block) const { return block * shape_.lanes; }
  Index tokens_in(Index block) const { return std::min(shape_.lanes, n_tok_ - first_token(block)); }

  template <class Body>
  void for_each_block(const Body& body) {
    pool_.parallel_for(shape_.n_blocks, [&](Index block, int) { body(block); });
  }

  // out [n_blocks, n_features, lanes] = scale times a row of the matrix for each token.
  void look_up(const Matrix& matrix, double scale, std::span<const TokenId> tokens,
               Tensor<float>& out) {
    const Index d = out.dim(1);
    for_each_block([&](Index block) {
      std::vector<float> scratch(static_cast<std::size_t>(d + 16));
      float* to = out.sub(block).data();
      std::fill_n(to, d * shape_.lanes, 0.0f);
      for (Index t = 0; t < tokens_in(block); ++t) {
        const Index id = tokens[static_cast<std::size_t>(first_token(block) + t)];
        Index stride = 0;
        const float* row = matrix.rows(id, id + 1, scratch.data(), stride);
        for (Index f = 0; f < d; ++f) to[f * shape_.lanes + t] = static_cast<float>(scale) * row[f];
      }
    });
  }

  // (norm(projection(x) / sqrt(d_model)) + embedding) / sqrt(2), for every layer
  void make_layer_inputs(std::span<const TokenId> tokens, const Tensor<float>& x) {
    const Index d = config_.d_layer_input;
    const Index width = config_.n_layers * d;
    input_gate_ = Tensor<float>::uninitialized({shape_.n_blocks, d, shape_.lanes});
    layer_inputs_ = Tensor<float>::uninitialized({shape_.n_blocks, width, shape_.lanes});
    linear({{&model_.weights.layer_input_projection, &kNoBias, layer_inputs_.data()}}, x.data(),
           shape_, pool_, model_.options.matmul);
    auto embeddings = Tensor<float>::uninitialized({shape_.n_blocks, width, shape_.lanes});
    look_up(model_.weights.layer_inputs, std::sqrt(static_cast<double>(d)), tokens, embeddings);
    const float scale = 1.0f / std::sqrt(static_cast<float>(config_.d_model));
    for_each_block([&](Index block) {
      float* of_block = layer_inputs_.sub(block).data();
      const float* embedding = embeddings.sub(block).data();
      for (Index i = 0; i < width * shape_.lanes; ++i) of_block[i] *= scale;
      for (Index layer = 0; layer < config_.n_layers; ++layer) {
        float* of_layer = of_block + layer * d * shape_.lanes;
        lane_rms_norm(of_layer, model_.weights.layer_input_norm.data(), d,
                      static_cast<float>(config_.rms_eps), of_layer, shape_.lanes);
      }
      for (Index i = 0; i < width * shape_.lanes; ++i)
        of_block[i] = (of_block[i] + embedding[i]) * std::numbers::sqrt2_v<float> / 2.0f;
    });
  }

  // q, and k and v as far as the layer has them; values are normed here.
  void project_apart(Index layer, const Tensor<float>& x, Tensor<float>& q, Tensor<float>& k,
                     Tensor<float>& v) {
    const LayerWeights& w = model_.layer(layer);
    linear({{&w.q, &w.q_bias, q.data()}}, x.data(), shape_, pool_, model_.options.matmul);
    const LayerShape heads = config_.shape(layer);
    if (heads.keys_of >= 0) return;
    linear({{&w.k, &w.k_bias, k.data()}}, x.data(), shape_, pool_, model_.options.matmul);
    if (config_.has_keys_as_values(layer)) {
      std::copy(k.flat().begin(), k.flat().end(), v.flat().begin());
    } else {
      linear({{&w.v, &w.v_bias, v.data()}}, x.data(), shape_, pool_, model_.options.matmul);
    }
    if (!config_.plan.norms_values) return;
    const std::vector<float> ones(static_cast<std::size_t>(heads.d_head), 1.0f);
    for_each_block([&](Index block) {
      for (Index h = 0; h < heads.n_kv; ++h) {
        float* head = v.sub(block).data() + h * heads.d_head * shape_.lanes;
        lane_rms_norm(head, ones.data(), heads.d_head, static_cast<float>(config_.rms_eps), head,
                      shape_.lanes);
      }
    });
  }

  RopeTables make_tables(const RopeConfig& rope) {
    const Shape shape{shape_.n_blocks, std::ssize(rope.frequencies), shape_.lanes};
    RopeTables tables{Tensor<float>::uninitialized(shape), Tensor<float>::uninitialized(shape)};
    for_each_block([&](Index block) {
      rope_tables(rope.frequencies, static_cast<float>(rope.amplitude),
                  pos_begin_ + first_token(block), tokens_in(block), shape_.lanes,
                  tables.cos.sub(block).data(), tables.sin.sub(block).data());
    });
    return tables;
  }

  // q, k and v from one matrix that holds them head after head.
  void project_fused(const LayerWeights& w, const Block& x, std::array<Tensor<float>*, 3> parts) {
    const Index d = config_.d_head * shape_.lanes;
    if (qkv_.count() == 0) {
      qkv_ = Tensor<float>::uninitialized({shape_.n_blocks, w.qkv.n_rows(), shape_.lanes});
    }
    linear({{&w.qkv, &w.qkv_bias, qkv_.data()}}, of(x).data(), shape_, pool_,
           model_.options.matmul);
    for_each_block([&](Index block) {
      const float* from = qkv_.sub(block).data();
      for (Index h = 0; h < config_.n_q; ++h) {
        for (Tensor<float>* part : parts) {
          std::copy_n(from, d, part->sub(block).data() + h * d);
          from += d;
        }
      }
    });
  }

  // bias: of a norm that takes the mean away; empty for the others.
  void normalize(const Tensor<float>& x, const Tensor<float>& weight, const Tensor<float>& bias,
                 Tensor<float>& y) {
    pool_.parallel_for(x.dim(0), [&](Index block, int) {
      if (config_.plan.layer_norm) {
        lane_layer_norm(x.sub(block).data(), weight.data(), bias.data(), config_.d_model,
                        static_cast<float>(config_.rms_eps), y.sub(block).data(), x.dim(2));
        return;
      }
      lane_rms_norm(x.sub(block).data(), weight.data(), config_.d_model,
                    static_cast<float>(config_.rms_eps), y.sub(block).data(), x.dim(2));
    });
  }

  // QK-norm and RoPE of every head of one block, in place. x [n_heads * d_head, lanes]
  void position(Index layer, float* x, Index n_heads, const Tensor<float>& norm, Index block) {
    const auto at = static_cast<std::size_t>(layer);
    const auto eps = static_cast<float>(config_.rms_eps);
    const Index d = config_.shape(layer).d_head;
    const RopeTables& rope = config_.local_rope && config_.window[at] ? local_rope_ : rope_;
    const bool norms_heads = norm.count() == d;
    if (norm.count() > 0 && !norms_heads) {
      lane_rms_norm(x, norm.data(), n_heads * d, eps, x, shape_.lanes);
    }
    for (Index h = 0; h < n_heads; ++h) {
      float* head = x + h * d * shape_.lanes;
      if (norms_heads) lane_rms_norm(head, norm.data(), d, eps, head, shape_.lanes);
      if (!config_.has_rope[at]) continue;
      lane_rope(head, rope.cos.sub(block).data(), rope.sin.sub(block).data(), 2 * rope.cos.dim(1),
                shape_.lanes);
    }
  }

  /// Rows of one block's keys, or values, to where the cache holds them: floats, or bits of bf16.
  template <class T>
  void append(const Tensor<float>& lanes, TensorView<T> to, Index layer, const char* what,
              Index block) {
    const Index first = pos_begin_ + first_token(block);
    const Index n = tokens_in(block);
    const Index d = to.dim(2);
    constexpr bool kNarrows = !std::same_as<T, float>;
    auto wide = Tensor<float>::uninitialized({kNarrows ? n : 0, d});
    for (Index h = 0; h < to.dim(0); ++h) {
      float* rows = wide.data();
      if constexpr (!kNarrows) rows = &to(h, first, Index{0});
      rows_from_lanes(lanes.sub(block).data() + h * d * shape_.lanes, d, shape_.lanes, n, rows, d);
      for (Index t = 0; t < n; ++t) {
        if (!all_finite({rows + t * d, static_cast<std::size_t>(d)}))
          throw_not_finite(what, layer, first + t);
      }
      if constexpr (kNarrows)
        from_float(rows, DType::bf16, &to(h, first, Index{0}), static_cast<std::size_t>(n * d));
    }
  }

  HalfRows halves(Index layer) const {
    if (cache_.dtype() != DType::bf16) return {};
    return {std::as_const(cache_).k_halves(layer), std::as_const(cache_).v_halves(layer),
            model_.half_matmul};
  }

  void check_lse(Index layer, bool may_see_nothing) const {
    for (Index h = 0; h < config_.n_q; ++h) {
      for (Index t = 0; t < n_tok_; ++t) {
        const float lse = lse_(h, t);
        const bool sees_nothing = may_see_nothing && lse == -std::numeric_limits<float>::infinity();
        if (!std::isfinite(lse) && !sees_nothing) {
          throw_not_finite("the attention scores", layer, pos_begin_ + t);
        }
      }
    }
  }

  const LaneModel& model_;
  const ModelConfig& config_;
  KvCache& cache_;
  ListMemory& lists_;
  ThreadPool& pool_;
  Index pos_begin_;
  Index n_tok_;
  LaneShape shape_;
  RopeTables rope_, local_rope_;
  Tensor<float> gate_, up_;     // [n_blocks, d_ff, lanes], made when first needed
  Tensor<float> layer_inputs_;  // [n_blocks, n_layers * d_layer_input, lanes], or empty
  Tensor<float> input_gate_;    // [n_blocks, d_layer_input, lanes], or empty
  Tensor<float> qkv_;           // [n_blocks, 3 * n_q * d_head, lanes], likewise
  Tensor<float> lse_;           // [n_q, n_tok]
  Tensor<float> q_rows_;        // [n_q, n_tok, d_head], made when first needed
};

class LaneBackend final : public Backend {
 public:
  LaneBackend(const ModelConfig& config, const ModelWeights& weights, const LaneOptions& options)
      : model_{config, weights, options, options.matmul} {
    if (options.matmul == Matmul::f32) model_.half_matmul = matmul_from_name("bf16");
  }

  std::string_view name() const override { return "lanes"; }

  std::unique_ptr<KvStore> make_store(Index capacity) const override {
    return std::make_unique<KvCache>(model_.config, capacity, model_.options.kv_dtype);
  }

  std::unique_ptr<BackendCall> begin(Index n_tok, KvStore& store, ThreadPool& pool) const override {
    auto* cache = dynamic_cast<KvCache*>(&store);
    if (cache == nullptr)
      throw ConfigError("the lane backend fills a KvCache, and found the store of another backend");
    return std::make_unique<LaneCall>(model_, n_tok, *cache, cache->lists(), pool);
  }

  std::optional<SequenceMemory> memory_of(Index capacity, Index n_tok) const override {
    const std::optional<std::size_t> free = available_memory();
    if (!free) return std::nullopt;
    const ModelConfig& config = model_.config;
    // of keys in bf16 a copy in f32 may be asked for
    const Index bytes = model_.options.kv_dtype == DType::f32 ? 4 : 6;
    const Index cache = config.kv_width() * capacity * bytes;
    // hidden states and their products, and a method's scores of every key
    const Index width = 4 * config.d_model + 3 * config.n_q * config.d_head +
                        config.n_q * capacity + 2 * config.n_layers * config.d_layer_input;
    return SequenceMemory{static_cast<std::size_t>(cache + 4 * n_tok * width), *free};
  }

 private:
  LaneModel model_;
};

}  // namespace

std::unique_ptr<Backend> make_lane_backend(const ModelConfig& config, const ModelWeights& weights) {
  return std::make_unique<LaneBackend>(config, weights, LaneOptions{});
}

BackendFactory lane_backend(const LaneOptions& options) {
  return [options](const ModelConfig& config, const ModelWeights& weights) {
    return std::make_unique<LaneBackend>(config, weights, options);
  };
}

}  // namespace kvscope

#include "tests/core/model/naive_backend.hpp"

#include <numbers>

#include "core/model/rope.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test {
namespace {

struct Rows final : Block {
  Index n_features = 0;
  std::vector<double> values;  // [n_tok, n_features]
  double* row(Index t) { return values.data() + t * n_features; }
  const double* row(Index t) const { return values.data() + t * n_features; }
};

Rows& of(Block& block) {
  return static_cast<Rows&>(block);
}
const Rows& of(const Block& block) {
  return static_cast<const Rows&>(block);
}

// Keys and values token by token, all heads of a token together. Host rows are copies.
class RowStore final : public KvStore {
 public:
  RowStore(const ModelConfig& c, Index capacity)
      : config_(c), capacity_(capacity), layers_(static_cast<std::size_t>(c.n_layers)) {
    const auto n = static_cast<std::size_t>(capacity * c.n_kv * c.d_head);
    for (Layer& layer : layers_) layer.k = layer.v = std::vector<float>(n);
  }
  Index capacity() const override { return capacity_; }
  Index n_tokens() const override { return n_tokens_; }
  Index n_layers() const override { return config_.n_layers; }
  DType dtype() const override { return DType::f32; }
  void advance(Index n) override { n_tokens_ += n; }
  void truncate(Index n) override { n_tokens_ = n; }
  void copy_from(const KvStore&) override { throw ConfigError("the naive store copies nothing"); }
  TensorView<const float> host_k(Index layer, Index begin, Index end) const override {
    return copy(at(layer).k, begin, end, k_copy_);
  }
  TensorView<const float> host_v(Index layer, Index begin, Index end) const override {
    return copy(at(layer).v, begin, end, v_copy_);
  }

  struct Layer {
    std::vector<float> k, v;  // [capacity, n_kv, d_head]
  };
  Layer& at(Index layer) { return layers_[layer]; }
  const Layer& at(Index layer) const { return layers_[layer]; }

 private:
  TensorView<const float> copy(const std::vector<float>& from, Index begin, Index end,
                               Tensor<float>& to) const {
    to = Tensor<float>({config_.n_kv, end - begin, config_.d_head});
    for (Index h = 0; h < config_.n_kv; ++h) {
      for (Index pos = begin; pos < end; ++pos) {
        for (Index f = 0; f < config_.d_head; ++f) {
          const Index index = (pos * config_.n_kv + h) * config_.d_head + f;
          to(h, pos - begin, f) = from[index];
        }
      }
    }
    return to.view();
  }

  const ModelConfig& config_;
  Index capacity_;
  Index n_tokens_ = 0;
  std::vector<Layer> layers_;
  mutable Tensor<float> k_copy_, v_copy_;
};

class RowCall final : public BackendCall {
 public:
  RowCall(const ModelConfig& c, const ModelWeights& w, Index n_tok, RowStore& store)
      : c_(c), w_(w), n_(n_tok), pos_(store.n_tokens()), store_(store), lse_({c.n_q, n_tok}) {}

  std::unique_ptr<Block> make_block(Index n_features) override {
    auto block = std::make_unique<Rows>();
    block->n_features = n_features;
    block->values.resize(static_cast<std::size_t>(n_ * n_features));
    return block;
  }
  void embed(std::span<const TokenId> tokens, Block& x) override {
    for (Index t = 0; t < n_; ++t) {
      const auto row = row_of(w_.embedding, tokens[t]);
      for (Index f = 0; f < c_.d_model; ++f) of(x).row(t)[f] = c_.plan.embedding_scale * row[f];
    }
  }
  void norm(Index layer, NormAt at, const Block& x, Block& y) override {
    for (Index t = 0; t < n_; ++t) {
      normalize(of(x).row(t), layer_of(layer).norm(at), of(y).row(t));
      add_bias(layer_of(layer).norm_bias(at), of(y).row(t));
    }
  }
  void project_qkv(Index layer, const Block& x, Block& q, Block& k, Block& v) override {
    const LayerWeights& w = layer_of(layer);
    if (c_.plan.fused_by_head) {
      const Index d = c_.d_head;
      const auto all = make_block(3 * c_.n_q * d);
      product(w.qkv, w.qkv_bias, of(x), of(*all));
      for_each_query([&](Index h, Index t) {
        for (Index f = 0; f < d; ++f) {
          of(q).row(t)[h * d + f] = of(*all).row(t)[3 * h * d + f];
          of(k).row(t)[h * d + f] = of(*all).row(t)[(3 * h + 1) * d + f];
          of(v).row(t)[h * d + f] = of(*all).row(t)[(3 * h + 2) * d + f];
        }
      });
      return;
    }
    product(w.q, w.q_bias, of(x), of(q));
    product(w.k, w.k_bias, of(x), of(k));
    product(w.v, w.v_bias, of(x), of(v));
  }
  void position_and_append(Index layer, Block& q, Block& k, const Block& v) override {
    const LayerWeights& w = layer_of(layer);
    for (Index t = 0; t < n_; ++t) {
      position(layer, t, c_.n_q, w.q_norm, of(q).row(t));
      position(layer, t, c_.n_kv, w.k_norm, of(k).row(t));
      const Index width = c_.n_kv * c_.d_head;
      for (Index i = 0; i < width; ++i) {
        const auto at = static_cast<std::size_t>((pos_ + t) * width + i);
        store_.at(layer).k[at] = static_cast<float>(of(k).row(t)[i]);
        store_.at(layer).v[at] = static_cast<float>(of(v).row(t)[i]);
      }
    }
  }
  void attend(Index layer, const Block& q, Block& out) override {
    const auto window = c_.window[layer];
    for_each_query([&](Index h, Index t) {
      const Index pos = pos_ + t;
      const Index first = window ? std::max<Index>(0, pos - *window + 1) : 0;
      std::vector<Index> keys;
      for (Index j = first; j <= pos; ++j) keys.push_back(j);
      attend_one(layer, h, t, keys, of(q), of(out));
    });
  }
  void attend_lists(const AttentionQuestion& question, const Selection& selection, const Block& q,
                    Block& out) override {
    for_each_query([&](Index h, Index t) {
      std::vector<Index> keys;
      for (const KeyPos j : selection.list(owner_of(selection.owner, h, c_.group()), t).keys) {
        if (j <= pos_ + t) keys.push_back(j);
      }
      attend_one(question.layer, h, t, keys, of(q), of(out));
    });
  }
  void project_out(Index layer, const Block& x, Block& y) override {
    product(layer_of(layer).o, layer_of(layer).o_bias, of(x), of(y));
  }
  void gated_mlp(Index layer, const Block& x, Block& y) override {
    const LayerWeights& w = layer_of(layer);
    const auto gate = make_block(c_.d_ff), up = make_block(c_.d_ff);
    if (!c_.plan.is_gated) {
      product(w.up, w.up_bias, of(x), of(*up));
      for (double& u : of(*up).values) u = activate(u);
      product(w.down, w.down_bias, of(*up), of(y));
      return;
    }
    product(w.gate, w.gate_bias, of(x), of(*gate));
    product(w.up, w.up_bias, of(x), of(*up));
    for (std::size_t i = 0; i < of(*gate).values.size(); ++i) {
      double& g = of(*gate).values[i];
      g = activate(g) * of(*up).values[i];
    }
    product(w.down, w.down_bias, of(*gate), of(y));
  }
  Routing mix_experts(Index, const Block&, Block&) override {
    throw ConfigError("the naive backend has no experts");
  }
  void add(Block& x, const Block& y) override {
    for (std::size_t i = 0; i < of(x).values.size(); ++i) of(x).values[i] += of(y).values[i];
  }
  Tensor<float> logits(const Block& x, Index n_rows) override {
    const auto normed = make_block(c_.d_model), all = make_block(c_.n_vocab);
    for (Index t = 0; t < n_; ++t) {
      normalize(of(x).row(t), w_.final_norm, of(*normed).row(t));
      add_bias(w_.final_norm_bias, of(*normed).row(t));
    }
    product(w_.lm_head.n_rows() == 0 ? w_.embedding : w_.lm_head, {}, of(*normed), of(*all));
    Tensor<float> out({n_rows, c_.n_vocab});
    const double cap = c_.plan.logit_softcap;
    for (Index t = 0; t < n_rows; ++t) {
      for (Index i = 0; i < c_.n_vocab; ++i) {
        const double value = of(*all).row(n_ - n_rows + t)[i];
        out(t, i) = static_cast<float>(cap > 0 ? cap * std::tanh(value / cap) : value);
      }
    }
    return out;
  }
  TensorView<const float> to_host_rows(const Block& q) override {
    rows_ = Tensor<float>({c_.n_q, n_, c_.d_head});
    for_each_query([&](Index h, Index t) {
      for (Index f = 0; f < c_.d_head; ++f)
        rows_(h, t, f) = static_cast<float>(of(q).row(t)[h * c_.d_head + f]);
    });
    return rows_.view();
  }
  TensorView<const float> host_lse() override { return lse_.view(); }

 private:
  const LayerWeights& layer_of(Index i) const { return w_.layers[i]; }

  static std::vector<double> row_of(const Matrix& matrix, Index row) {
    std::vector<float> scratch(static_cast<std::size_t>(matrix.n_cols() + 16));
    Index stride = 0;
    const float* values = matrix.rows(row, row + 1, scratch.data(), stride);
    return {values, values + matrix.n_cols()};
  }
  void product(const Matrix& matrix, const Tensor<float>& bias, const Rows& x, Rows& y) const {
    for (Index r = 0; r < matrix.n_rows(); ++r) {
      const auto w = row_of(matrix, r);
      for (Index t = 0; t < n_; ++t) {
        double sum = bias.count() > 0 ? bias(r) : 0.0;
        for (Index f = 0; f < matrix.n_cols(); ++f) sum += w[f] * x.row(t)[f];
        y.row(t)[r] = sum;
      }
    }
  }
  void normalize(const double* x, const Tensor<float>& weight, double* y) const {
    double mean = 0.0;
    for (Index f = 0; f < weight.count() && c_.plan.layer_norm; ++f)
      mean += x[f] / static_cast<double>(weight.count());
    double sum = 0.0;
    for (Index f = 0; f < weight.count(); ++f) sum += (x[f] - mean) * (x[f] - mean);
    const double scale = 1.0 / std::sqrt(sum / static_cast<double>(weight.count()) + c_.rms_eps);
    for (Index f = 0; f < weight.count(); ++f)
      y[f] = (x[f] - mean) * scale * static_cast<double>(weight(f));
  }
  static void add_bias(const Tensor<float>& bias, double* y) {
    for (Index f = 0; f < bias.count(); ++f) y[f] += static_cast<double>(bias(f));
  }
  void position(Index layer, Index t, Index n_heads, const Tensor<float>& norm, double* x) const {
    const auto at = static_cast<std::size_t>(layer);
    const RopeConfig& rope = c_.rope_of(static_cast<Index>(at));
    const auto& frequency = rope.frequencies;
    if (norm.count() == n_heads * c_.d_head) normalize(x, norm, x);
    for (Index h = 0; h < n_heads; ++h) {
      double* head = x + h * c_.d_head;
      if (norm.count() == c_.d_head && n_heads > 1) normalize(head, norm, head);
      if (!c_.has_rope[at]) continue;
      const Index half = c_.rotary_dim / 2;
      for (Index i = 0; i < half; ++i) {
        // the angle is rounded to float, as core/model/rope.hpp says
        const float angle = static_cast<float>(pos_ + t) * frequency[i];
        const double c = rope.amplitude * std::cos(static_cast<double>(angle));
        const double s = rope.amplitude * std::sin(static_cast<double>(angle));
        const double a = head[i], b = head[i + half];
        head[i] = a * c - b * s;
        head[i + half] = b * c + a * s;
      }
    }
  }
  template <class Body>
  void for_each_query(const Body& body) const {
    for (Index h = 0; h < c_.n_q; ++h) {
      for (Index t = 0; t < n_; ++t) body(h, t);
    }
  }
  void attend_one(Index layer, Index h, Index t, const std::vector<Index>& keys, const Rows& q,
                  Rows& out) {
    const Index d = c_.d_head;
    const Tensor<float>& sink_logits = layer_of(layer).sink_logits;
    const RowStore::Layer& stored = store_.at(layer);
    const auto row = [&](const std::vector<float>& all, Index pos) {
      return all.data() + (pos * c_.n_kv + h / c_.group()) * d;
    };
    double sum = sink_logits.count() > 0 ? std::exp(static_cast<double>(sink_logits(h))) : 0.0;
    std::vector<double> mix(static_cast<std::size_t>(d), 0.0);
    for (const Index pos : keys) {
      double score = 0.0;
      for (Index f = 0; f < d; ++f)
        score += q.row(t)[h * d + f] * static_cast<double>(row(stored.k, pos)[f]);
      score *= static_cast<double>(c_.score_scale());
      const double most = c_.plan.score_softcap;
      if (most > 0.0) score = most * std::tanh(score / most);
      const double e = std::exp(score);
      sum += e;
      for (Index f = 0; f < d; ++f) mix[f] += e * static_cast<double>(row(stored.v, pos)[f]);
    }
    for (Index f = 0; f < d; ++f) out.row(t)[h * d + f] = keys.empty() ? 0.0 : mix[f] / sum;
    lse_(h, t) = static_cast<float>(keys.empty() ? -INFINITY : std::log(sum));
  }
  double activate(double g) const {
    if (c_.plan.activation == LayerPlan::Activation::silu) return g / (1.0 + std::exp(-g));
    if (c_.plan.activation == LayerPlan::Activation::gelu)
      return 0.5 * g * (1.0 + std::erf(g / std::numbers::sqrt2));
    const double u = std::sqrt(2.0 / std::numbers::pi) * (g + 0.044715 * g * g * g);
    return 0.5 * g * (1.0 + std::tanh(u));
  }

  const ModelConfig& c_;
  const ModelWeights& w_;
  Index n_;
  Index pos_;
  RowStore& store_;
  Tensor<float> lse_;
  Tensor<float> rows_;
};

class NaiveBackend final : public Backend {
 public:
  NaiveBackend(const ModelConfig& c, const ModelWeights& w) : c_(c), w_(w) {}
  std::string_view name() const override { return "naive"; }
  std::unique_ptr<KvStore> make_store(Index capacity) const override {
    return std::make_unique<RowStore>(c_, capacity);
  }
  std::unique_ptr<BackendCall> begin(Index n_tok, KvStore& store, ThreadPool&) const override {
    return std::make_unique<RowCall>(c_, w_, n_tok, dynamic_cast<RowStore&>(store));
  }

 private:
  const ModelConfig& c_;
  const ModelWeights& w_;
};

}  // namespace

std::unique_ptr<Backend> make_naive_backend(const ModelConfig& config,
                                            const ModelWeights& weights) {
  return std::make_unique<NaiveBackend>(config, weights);
}

}  // namespace kvscope::test

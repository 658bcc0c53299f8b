// All that a model shows of its forward calls, and comparisons of two runs.
#pragma once

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <vector>

#include "core/model/transformer.hpp"

namespace kvscope::test {

// Keeps everything that the observer is shown, for all layers, over any number of calls.
class Capture final : public Observer {
 public:
  Capture(const ModelConfig& c, Index n_tokens) {
    for (Index i = 0; i < c.n_layers; ++i) {
      const LayerShape heads = c.shape(i);
      q.emplace_back(Shape{c.n_q, n_tokens, heads.d_head});
      k.emplace_back(Shape{heads.n_kv, n_tokens, heads.d_head});
      v.emplace_back(Shape{heads.n_kv, n_tokens, heads.d_head});
      lse.emplace_back(Shape{c.n_q, n_tokens});
    }
    logits = Tensor<float>({n_tokens, c.n_vocab});
  }
  bool wants(Index) const override { return true; }
  void on_attention(const AttentionEvent& e) override {
    const auto copy = [&](TensorView<const float> from, Tensor<float>& to) {
      for (Index h = 0; h < from.dim(0); ++h)
        for (Index t = 0; t < e.n_tok; ++t)
          for (Index f = 0; f < from.dim(2); ++f) to(h, e.pos_begin + t, f) = from(h, t, f);
    };
    const auto layer = static_cast<std::size_t>(e.layer);
    copy(e.q, q[layer]);
    copy(e.k, k[layer]);
    copy(e.v, v[layer]);
    for (Index h = 0; h < e.lse.dim(0); ++h)
      for (Index t = 0; t < e.n_tok; ++t) lse[layer](h, e.pos_begin + t) = e.lse(h, t);
    CHECK(e.k_cache.dim(1) == e.pos_begin + e.n_tok);
  }
  void on_logits(Index pos, TensorView<const float> rows) override {
    for (Index t = 0; t < rows.dim(0); ++t)
      for (Index i = 0; i < rows.dim(1); ++i) logits(pos + t, i) = rows(t, i);
  }

  std::vector<Tensor<float>> q, k, v, lse;
  Tensor<float> logits;
};

// Runs `tokens` in calls of `chunk` tokens (0: one call) and returns all that was seen.
inline Capture run(const Transformer& model, const std::vector<TokenId>& tokens, std::size_t chunk,
                   int n_threads, AttentionPolicy* policy = nullptr) {
  ThreadPool pool(n_threads);
  const auto store = model.backend().make_store(static_cast<Index>(tokens.size()));
  Capture capture(model.config(), static_cast<Index>(tokens.size()));
  const std::size_t step = chunk == 0 ? tokens.size() : chunk;
  for (std::size_t begin = 0; begin < tokens.size(); begin += step) {
    const std::size_t n = std::min(step, tokens.size() - begin);
    model.forward({tokens.data() + begin, n}, *store, pool, {Logits::all, &capture, policy});
  }
  return capture;
}

inline bool same_bits(const Tensor<float>& a, const Tensor<float>& b) {
  return std::equal(a.flat().begin(), a.flat().end(), b.flat().begin(), b.flat().end());
}

inline void check_same_bits(const Capture& a, const Capture& b) {
  for (std::size_t i = 0; i < a.q.size(); ++i) {
    CHECK(same_bits(a.q[i], b.q[i]));
    CHECK(same_bits(a.k[i], b.k[i]));
    CHECK(same_bits(a.v[i], b.v[i]));
    CHECK(same_bits(a.lse[i], b.lse[i]));
  }
  CHECK(same_bits(a.logits, b.logits));
}

// softmax(scale q k^T) over the visible keys, three loops in double. [n_q, T, T]
inline Tensor<float> attention_maps(const ModelConfig& c, const Capture& capture, Index layer) {
  const auto at = static_cast<std::size_t>(layer);
  const Index n = capture.q[at].dim(1);
  const LayerShape heads = c.shape(layer);
  Tensor<float> maps({c.n_q, n, n});
  for (Index h = 0; h < c.n_q; ++h) {
    for (Index i = 0; i < n; ++i) {
      for (Index j = 0; j <= i; ++j) {
        if (c.window[at] && i - j >= *c.window[at]) continue;
        double score = 0.0;
        for (Index f = 0; f < heads.d_head; ++f)
          score += static_cast<double>(capture.q[at](h, i, f)) *
                   capture.k[at](h * heads.n_kv / c.n_q, j, f);
        const double capped = heads.score_rule().of(score);
        maps(h, i, j) = static_cast<float>(std::exp(capped - capture.lse[at](h, i)));
      }
    }
  }
  return maps;
}

}  // namespace kvscope::test

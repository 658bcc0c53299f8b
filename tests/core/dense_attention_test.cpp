// Dense attention and the lane kernels against three loops in double, on every instruction set
// of this machine.
#include <hwy/targets.h>
#include <random>

#include "core/attention/dense_attention.hpp"
#include "core/base/cpu.hpp"
#include "core/tensor/lane_kernels.hpp"
#include "support/only_target.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::dense_attention_test {

void fill(Tensor<float>& tensor, std::mt19937& rng, float scale = 1.0f) {
  std::normal_distribution<float> normal(0.0f, scale);
  for (float& x : tensor.flat()) x = normal(rng);
}

struct Problem {
  Index n_q, n_kv, d, pos_begin, n_tok;
  std::optional<Index> window;
  bool has_sink_logits = false;
  float score_cap = 0.0f;
};

void check_attention(const Problem& p, float scale_of_q) {
  std::mt19937 rng(7);
  const Index n_ctx = p.pos_begin + p.n_tok;
  Tensor<float> q({p.n_q, p.n_tok, p.d}), k({p.n_kv, n_ctx, p.d}), v({p.n_kv, n_ctx, p.d});
  fill(q, rng, scale_of_q);
  fill(k, rng);
  fill(v, rng);
  Tensor<float> out({p.n_q, p.n_tok, p.d}), lse({p.n_q, p.n_tok});
  AttentionQuestion call{.pos_begin = p.pos_begin,
                         .n_tok = p.n_tok,
                         .score_scale = 1.0f / std::sqrt(static_cast<float>(p.d)),
                         .score_cap = p.score_cap,
                         .q = q.view(),
                         .k = k.view(),
                         .v = v.view()};
  Tensor<float> sink_logits({p.n_q});
  fill(sink_logits, rng, 3.0f);
  if (p.has_sink_logits) call.sink_logits = sink_logits.flat();
  call.window = p.window;
  ThreadPool pool(2);
  attend_dense(call, {out.view(), lse.view()}, pool);

  double worst_out = 0.0, worst_lse = 0.0;
  for (Index h = 0; h < p.n_q; ++h) {
    const Index g = h / (p.n_q / p.n_kv);
    for (Index i = 0; i < p.n_tok; ++i) {
      const Index pos = p.pos_begin + i;
      const Index first = p.window ? std::max<Index>(0, pos - *p.window + 1) : 0;
      std::vector<double> weight;
      double max = -INFINITY;
      for (Index j = first; j <= pos; ++j) {
        double score = 0.0;
        for (Index f = 0; f < p.d; ++f) score += static_cast<double>(q(h, i, f)) * k(g, j, f);
        score *= static_cast<double>(call.score_scale);
        if (p.score_cap > 0.0f) score = p.score_cap * std::tanh(score / p.score_cap);
        weight.push_back(score);
        max = std::max(max, weight.back());
      }
      const double sink_logit = sink_logits(h);
      if (p.has_sink_logits) max = std::max(max, sink_logit);
      double sum = p.has_sink_logits ? std::exp(sink_logit - max) : 0.0;
      for (double& w : weight) sum += (w = std::exp(w - max));
      const double true_lse = max + std::log(sum);
      worst_lse = std::max(worst_lse, std::abs(true_lse - static_cast<double>(lse(h, i))) /
                                          std::max(1.0, std::abs(true_lse)));
      for (Index f = 0; f < p.d; ++f) {
        double o = 0.0;
        for (std::size_t j = 0; j < weight.size(); ++j)
          o += weight[j] / sum * static_cast<double>(v(g, first + static_cast<Index>(j), f));
        worst_out = std::max(worst_out, std::abs(o - static_cast<double>(out(h, i, f))));
      }
    }
  }
  CHECK(worst_out < 2e-5);
  CHECK(worst_lse < 2e-6);
}

TEST_CASE("dense attention equals three loops in double") {
  for (const std::int64_t target : test::testable_targets()) {
    DYNAMIC_SECTION(hwy::TargetName(target)) {
      const test::OnlyTarget only(target);
      CHECK(vector_targets() == std::vector<std::string>{hwy::TargetName(target)});
      check_attention({4, 2, 16, 0, 1, {}}, 1.0f);
      check_attention({4, 1, 8, 0, 40, {}}, 1.0f);
      check_attention({6, 2, 24, 130, 3, {}}, 3.0f);         // decode-like, heads share a block
      check_attention({2, 2, 64, 100, 200, {}}, 1.0f);       // several key blocks
      check_attention({3, 1, 10, 0, 300, Index{12}}, 1.0f);  // sliding window
      check_attention({2, 1, 16, 400, 5, Index{150}}, 1.0f);
      check_attention({2, 1, 32, 0, 140, Index{1}}, 1.0f);  // each token sees itself only
      check_attention({4, 2, 16, 0, 1, {}, /*has_sink_logits=*/true}, 1.0f);
      // Heads share a block.
      check_attention({6, 2, 24, 130, 3, {}, /*has_sink_logits=*/true}, 3.0f);
      check_attention({4, 1, 16, 0, 300, Index{12}, /*has_sink_logits=*/true}, 1.0f);
      check_attention({4, 1, 16, 0, 300, Index{12}, /*has_sink_logits=*/true, /*score_cap=*/2.0f},
                      3.0f);
      check_attention({6, 2, 24, 130, 3, {}, /*has_sink_logits=*/false, /*score_cap=*/50.0f},
                      60.0f);
      check_attention({2, 2, 10, 700, 1, {}, /*has_sink_logits=*/false, /*score_cap=*/0.5f}, 1.0f);
    }
  }
}

TEST_CASE("attention stays finite for scores far apart") {
  check_attention({2, 2, 16, 0, 150, {}}, 60.0f);
}

TEST_CASE("products, norms and SwiGLU equal plain loops on every instruction set") {
  for (const std::int64_t target : test::testable_targets()) {
    DYNAMIC_SECTION(hwy::TargetName(target)) {
      const test::OnlyTarget only(target);
      const Index lanes = GENERATE(kNarrowLanes, kWideLanes);
      const Index rows = 19, k = 37;
      std::mt19937 rng(3);
      Tensor<float> w({rows, k}), x({k, lanes}), bias({rows}), y({rows, lanes});
      fill(w, rng);
      fill(x, rng);
      fill(bias, rng);
      lane_matmul(w.data(), k, rows, k, bias.data(), x.data(), y.data(), lanes);
      for (Index r = 0; r < rows; ++r) {
        for (Index t = 0; t < lanes; ++t) {
          double sum = bias(r);
          for (Index i = 0; i < k; ++i) sum += static_cast<double>(w(r, i)) * x(i, t);
          REQUIRE(std::abs(sum - static_cast<double>(y(r, t))) < 1e-4);
        }
      }

      Tensor<float> normed({k, lanes}), weight({k});
      fill(weight, rng);
      lane_rms_norm(x.data(), weight.data(), k, 1e-5f, normed.data(), lanes);
      for (Index t = 0; t < lanes; ++t) {
        double sum = 0.0;
        for (Index i = 0; i < k; ++i) sum += static_cast<double>(x(i, t)) * x(i, t);
        const double scale = 1.0 / std::sqrt(sum / static_cast<double>(k) + 1e-5);
        for (Index i = 0; i < k; ++i) {
          REQUIRE(std::abs(static_cast<double>(x(i, t)) * scale * weight(i) -
                           static_cast<double>(normed(i, t))) < 1e-5);
        }
      }

      Tensor<float> gate = x.clone();
      lane_swiglu(gate.data(), normed.data(), k * lanes);
      for (Index i = 0; i < k * lanes; ++i) {
        const double g = x.data()[i];
        const double expected = g / (1.0 + std::exp(-g)) * static_cast<double>(normed.data()[i]);
        REQUIRE(std::abs(expected - static_cast<double>(gate.data()[i])) < 1e-5);
      }

      Tensor<float> gate_up({2 * rows, lanes}), clamped({rows, lanes});
      fill(gate_up, rng, 4.0f);
      lane_clamped_swiglu(gate_up.data(), rows, 1.702f, 3.5f, clamped.data(), lanes);
      for (Index f = 0; f < rows; ++f) {
        for (Index t = 0; t < lanes; ++t) {
          const double g = std::min(static_cast<double>(gate_up(2 * f, t)), 3.5);
          const double u = std::clamp(static_cast<double>(gate_up(2 * f + 1, t)), -3.5, 3.5);
          const double value = (u + 1.0) * g / (1.0 + std::exp(-static_cast<double>(1.702f) * g));
          REQUIRE(std::abs(value - static_cast<double>(clamped(f, t))) < 2e-5);
        }
      }
    }
  }
}

}  // namespace kvscope::test::dense_attention_test

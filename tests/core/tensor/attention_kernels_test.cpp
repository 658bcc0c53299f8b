// Attention kernels: the same bits for any chunks, any threads and any side of a span of keys, on
// every instruction set.
#include <hwy/targets.h>
#include <optional>
#include <random>
#include <utility>

#include "core/attention/dense_attention.hpp"
#include "core/tensor/attention_kernels.hpp"
#include "core/tensor/dtype.hpp"
#include "support/only_target.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::attention_kernels_test {

struct Shape3 {
  Index n_q, n_kv, d, n_ctx;
  std::optional<Index> window;
  bool has_sink_logits = false;
  float score_cap = 0.0f;
};

struct Inputs {
  Tensor<float> q, k, v, sink_logits;
  Tensor<std::uint16_t> k_halves, v_halves;
  std::optional<Matmul> halves_by;  // keys and values in bf16, multiplied so

  /// Rounds k and v, so that bf16 holds them exactly.
  void round(Matmul matmul) {
    halves_by = matmul;
    for (auto [floats, halves] : {std::pair{&k, &k_halves}, std::pair{&v, &v_halves}}) {
      *halves = Tensor<std::uint16_t>(floats->shape());
      const auto n = static_cast<std::size_t>(floats->count());
      from_float(floats->data(), DType::bf16, halves->data(), n);
      to_float(DType::bf16, halves->data(), floats->data(), n);
    }
  }
  HalfRows halves() const {
    return halves_by ? HalfRows{k_halves.view(), v_halves.view(), *halves_by} : HalfRows{};
  }

  explicit Inputs(const Shape3& s)
      : q({s.n_q, s.n_ctx, s.d}),
        k({s.n_kv, s.n_ctx, s.d}),
        v({s.n_kv, s.n_ctx, s.d}),
        sink_logits({s.n_q}) {
    std::mt19937 rng(11);
    std::normal_distribution<float> normal;
    for (auto* tensor : {&q, &k, &v, &sink_logits}) {
      for (float& x : tensor->flat()) x = 2.0f * normal(rng);
    }
  }
};

struct Result {
  Tensor<float> out, lse;
};

// Positions [begin, end) of the sequence in calls of `chunk` tokens.
Result attend(const Shape3& s, const Inputs& in, Index begin, Index end, Index chunk,
              int n_threads) {
  ThreadPool pool(n_threads);
  Result result{Tensor<float>({s.n_q, end - begin, s.d}), Tensor<float>({s.n_q, end - begin})};
  for (Index pos = begin; pos < end; pos += chunk) {
    const Index last = std::min(end, pos + chunk);
    AttentionQuestion call{.pos_begin = pos,
                           .n_tok = last - pos,
                           .score_scale = 1.0f / std::sqrt(static_cast<float>(s.d)),
                           .score_cap = s.score_cap,
                           .q = in.q.view().range(1, pos, last),
                           .k = in.k.view(),
                           .v = in.v.view()};
    if (s.has_sink_logits) call.sink_logits = in.sink_logits.flat();
    call.window = s.window;
    attend_dense(call,
                 {result.out.view().range(1, pos - begin, last - begin),
                  result.lse.view().range(1, pos - begin, last - begin)},
                 pool, in.halves());
  }
  return result;
}

bool same_bits(const Result& a, const Result& b) {
  const auto same = [](std::span<const float> x, std::span<const float> y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end());
  };
  return same(a.out.flat(), b.out.flat()) && same(a.lse.flat(), b.lse.flat());
}

// Largest difference of outputs from three loops in double.
double worst_error(const Shape3& s, const Inputs& in, Index begin, const Result& result) {
  double worst = 0.0;
  for (Index h = 0; h < s.n_q; ++h) {
    const Index g = h / (s.n_q / s.n_kv);
    for (Index t = 0; t < result.lse.dim(1); ++t) {
      const Index pos = begin + t;
      const Index first = s.window ? std::max<Index>(0, pos - *s.window + 1) : 0;
      std::vector<double> p;
      for (Index j = first; j <= pos; ++j) {
        double score = 0.0;
        for (Index f = 0; f < s.d; ++f)
          score += static_cast<double>(in.q(h, pos, f)) * in.k(g, j, f);
        score /= std::sqrt(static_cast<double>(s.d));
        if (s.score_cap > 0.0f) score = s.score_cap * std::tanh(score / s.score_cap);
        p.push_back(std::exp(score - static_cast<double>(result.lse(h, t))));
      }
      double mass = s.has_sink_logits
                        ? std::exp(static_cast<double>(in.sink_logits(h)) - result.lse(h, t))
                        : 0.0;
      for (const double x : p) mass += x;
      worst = std::max(worst, std::abs(mass - 1.0));
      for (Index f = 0; f < s.d; ++f) {
        double o = 0.0;
        for (std::size_t j = 0; j < p.size(); ++j)
          o += p[j] * static_cast<double>(in.v(g, first + static_cast<Index>(j), f));
        worst = std::max(worst, std::abs(o - static_cast<double>(result.out(h, t, f))));
      }
    }
  }
  return worst;
}

TEST_CASE("attention has the same bits for any chunks and threads") {
  const std::vector<Shape3> shapes = {
      {6, 2, 16, kKeySpan + 90, {}},
      {3, 1, 8, 700, {}},
      {4, 4, 10, 300, {}},
      {7, 1, 33, 200, {}},
      {9, 1, 20, 150, {}},
      {2, 1, 128, 2 * kKeySpan + 40, {}},
      {4, 2, 24, kKeySpan + 300, Index{200}},
      {4, 2, 24, kKeySpan + 300, Index{200}, /*has_sink_logits=*/true},
      {8, 1, 64, 260, {}, /*has_sink_logits=*/true},
      {4, 2, 24, kKeySpan + 300, Index{200}, /*has_sink_logits=*/true, /*score_cap=*/3.0f},
  };
  for (const std::int64_t target : test::testable_targets()) {
    DYNAMIC_SECTION(hwy::TargetName(target)) {
      const test::OnlyTarget only(target);
      for (const Shape3& s : shapes) {
        INFO("n_q " << s.n_q << ", n_kv " << s.n_kv << ", d_head " << s.d << ", n_ctx " << s.n_ctx);
        const Inputs in(s);
        const Index begin = s.n_ctx - 131;
        const Result whole = attend(s, in, begin, s.n_ctx, 131, 1);
        CHECK(worst_error(s, in, begin, whole) < 1e-4);
        for (const int n_threads : {2, 3, 4})
          CHECK(same_bits(whole, attend(s, in, begin, s.n_ctx, 131, n_threads)));
        for (const Index chunk : {1, 2, 5, 17, 40}) {
          INFO("chunk " << chunk);
          CHECK(same_bits(whole,
                          attend(s, in, begin, s.n_ctx, chunk, 1 + static_cast<int>(chunk) % 4)));
        }
      }
    }
  }
}

TEST_CASE("keys in bf16: the same bits for any chunks and threads, near to loops in double") {
  const std::vector<Shape3> shapes = {
      {6, 2, 64, kKeySpan + 90, {}},
      {3, 1, 128, 2 * kKeySpan + 45, {}},
      {4, 2, 32, kKeySpan + 300, Index{200}},
      {8, 1, 96, 260, {}, /*has_sink_logits=*/true},
      {4, 4, 20, 300, {}},
      {4, 2, 64, kKeySpan + 300, Index{200}, /*has_sink_logits=*/true},
      {4, 2, 64, kKeySpan + 90, {}, /*has_sink_logits=*/false, /*score_cap=*/3.0f},
  };
  for (const Matmul matmul : {Matmul::bf16_portable, Matmul::bf16_avx512, Matmul::bf16_amx}) {
    if (!is_available(matmul)) continue;
    for (const Shape3& s : shapes) {
      INFO(enum_name(matmul) << ", d_head " << s.d << ", n_ctx " << s.n_ctx);
      Inputs in(s);
      in.round(matmul);
      const Index begin = s.n_ctx - 131;
      const Result whole = attend(s, in, begin, s.n_ctx, 131, 1);
      // Queries and weights are rounded too where the processor multiplies bf16.
      const bool is_widened = matmul == Matmul::bf16_portable || s.d % 32 != 0;
      CHECK(worst_error(s, in, begin, whole) < (is_widened ? 1e-4 : 0.15));
      CHECK(same_bits(whole, attend(s, in, begin, s.n_ctx, 131, 3)));
      for (const Index chunk : {1, 2, 5, 17, 40}) {
        INFO("chunk " << chunk);
        CHECK(same_bits(whole,
                        attend(s, in, begin, s.n_ctx, chunk, 1 + static_cast<int>(chunk) % 4)));
      }
    }
  }
}

}  // namespace kvscope::test::attention_kernels_test

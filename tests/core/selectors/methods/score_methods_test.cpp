// SampleAttention, SparQ, Loki: each against three naive loops.

#include "core/base/parallel.hpp"
#include "core/tensor/principal_axes.hpp"
#include "core/trace/memory_trace.hpp"
#include "tests/core/selectors/call_fixture.hpp"
#include "tests/core/selectors/lists.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::score_methods_test {

Tensor<double> directions_of(TensorView<const float> keys) {
  return principal_axes({&keys, 1}).directions;
}

TEST_CASE("sampleattention: sampled softmax rows vote; dead keys are out of the softmax") {
  CallFixture fixture({.n_q = 6, .n_kv = 2, .n_past = 50, .n_tok = 10});
  fixture.call.window = 45;
  fixture.alive.kill(0, 20);
  fixture.call.budget = Budget::parse("tokens=8");
  const Selection selection = made("sampleattention:n-queries=4", fixture)->select(fixture.call);
  fixture.call.budget = Budget::parse("p=0.9");
  const Selection by_mass = made("sampleattention:n-queries=4", fixture)->select(fixture.call);
  for (Index kv = 0; kv < 2; ++kv) {
    std::vector<double> votes(50, -std::numeric_limits<double>::infinity());
    double total = 0.0;
    for (Index pos = 6; pos < 50; ++pos) {
      double vote = 0.0;
      for (Index h = kv * 3; h < kv * 3 + 3; ++h) {
        for (const Index row : {0, 2, 5, 7}) vote += fixture.weights(h, row)[pos];
      }
      total += vote;
      if (fixture.sees(kv * 3, 0, pos)) votes[pos] = vote;
    }
    CHECK(selection.list(kv, 0).scored() == naive_top_k(votes, 8));
    CHECK(selection.list(kv, 0).forced() == positions(50, 60));
    double kept = 0.0;
    for (const KeyPos pos : by_mass.list(kv, 0).scored()) kept += votes[pos];
    CHECK(kept >= 0.9 * total - 1e-6);
    CHECK(by_mass.list(kv, 0).scored().size() < 44);
  }
}

TEST_CASE("sparq: decode keeps the latest and the best by few channels, and mixes the mean value") {
  CallFixture fixture({.n_q = 4, .n_kv = 2, .n_past = 60, .n_tok = 1, .phase = Phase::decode});
  fixture.call.budget = Budget::parse("tokens=12");
  const Selection selection = made("sparq:n-channels=5", fixture)->select(fixture.call);
  for (Index kv = 0; kv < 2; ++kv) {
    std::vector<double> size(16, 0.0);
    for (Index c = 0; c < 16; ++c) {
      for (Index h = 2 * kv; h < 2 * kv + 2; ++h) size[c] += std::abs(fixture.q(h, 0, c));
    }
    const auto channels = naive_top_k(size, 5);
    std::vector<std::vector<double>> logits(2, std::vector<double>(61));
    for (Index h = 0; h < 2; ++h) {
      double kept = 0.0;
      double all = 0.0;
      for (Index c = 0; c < 16; ++c) all += std::abs(fixture.q(2 * kv + h, 0, c));
      for (const KeyPos c : channels) kept += std::abs(fixture.q(2 * kv + h, 0, c));
      for (Index t = 0; t < 61; ++t) {
        double dot = 0.0;
        for (const KeyPos c : channels) {
          dot += static_cast<double>(fixture.q(2 * kv + h, 0, c)) *
                 static_cast<double>(fixture.k(kv, t, c));
        }
        logits[h][t] = dot / std::sqrt(16.0 * kept / all);
      }
    }
    std::vector<double> others(57);  // three of the twelve are the latest past keys
    for (std::size_t t = 0; t < 57; ++t) others[t] = logits[0][t] + logits[1][t];
    const ListView list = selection.list(kv, 0);
    CHECK(list.scored() == naive_top_k(others, 9));
    CHECK(list.forced() == positions(57, 61));
    for (Index h = 0; h < 2; ++h) {
      double sum = 0.0;
      double held = 0.0;
      for (const double x : logits[h]) sum += std::exp(x);
      for (const KeyPos pos : merged(list)) held += std::exp(logits[h][pos]);
      CHECK(static_cast<double>(selection.summaries.list_share(2 * kv + h, 0)) ==
            Catch::Approx(held / sum).epsilon(1e-6));
      double mean = 0.0;
      for (Index t = 0; t < 61; ++t) mean += static_cast<double>(fixture.v(kv, t, 3)) / 61.0;
      CHECK(static_cast<double>(selection.summaries.v(kv, 3)) == Catch::Approx(mean).margin(1e-6));
    }
  }
}

TEST_CASE("loki: full rank is exact, few directions rank by the projected product") {
  CallFixture fixture({.n_q = 4, .n_kv = 2, .n_past = 80, .n_tok = 1, .phase = Phase::decode});
  fixture.call.budget = Budget::parse("tokens=10");
  auto full = made("loki:basis=calibrated,rank-share=1", fixture);
  auto few = made("loki:basis=calibrated,rank=3", fixture);
  MemoryTrace text(make_trace_info(8, 4, 2, 16, fixture.k.dim(1), fixture.k.dim(1)));
  std::copy_n(fixture.k.data(), fixture.k.count(), text.k(5).data());
  const std::vector<Index> layers = {5};
  ThreadPool pool(2);
  full->calibrate(text, layers, pool);
  few->calibrate(text, layers, pool);
  const Selection exact = full->select(fixture.call);
  const Selection rough = few->select(fixture.call);
  CHECK(exact.owner == ListOwner::q_head);
  for (Index h = 0; h < 4; ++h) {
    const Tensor<double> basis = directions_of(fixture.k.sub(h / 2));
    std::vector<double> logits;
    std::vector<double> projected;
    for (Index t = 0; t < 80; ++t) {
      logits.push_back(fixture.logit(h, 0, t));
      double sum = 0.0;
      for (Index r = 0; r < 3; ++r) {
        double a = 0.0;
        double b = 0.0;
        for (Index c = 0; c < 16; ++c) {
          a += basis(r, c) * static_cast<double>(fixture.q(h, 0, c));
          b += basis(r, c) * static_cast<double>(fixture.k(h / 2, t, c));
        }
        sum += a * b;
      }
      projected.push_back(sum);
    }
    CHECK(exact.list(h, 0).scored() == naive_top_k(logits, 10));
    CHECK(rough.list(h, 0).scored() == naive_top_k(projected, 10));
  }
  CHECK(made("loki:basis=self,rank-share=1", fixture)->select(fixture.call).at(0).scored() ==
        exact.at(0).scored());
  CallFixture other({.d_head = 8});
  other.call.budget = Budget::parse("tokens=10");
  CHECK_THROWS_AS(full->select(other.call), ShapeError);
}

}  // namespace kvscope::test::score_methods_test

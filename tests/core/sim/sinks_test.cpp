// Attention sinks in what replay measures: three loops in double against the library.
#include "core/attention/score_rows.hpp"
#include "core/sim/attended.hpp"
#include "core/sim/draft_rows.hpp"
#include "core/sim/metrics.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::sinks_test {

TEST_CASE("a row with a sink: mass is a share of the keys', errors are those of the output") {
  const std::vector<double> scores = {0.3, 1.7, -0.4, 0.9, 2.2};
  const double sink_logit = 1.1;
  Random random(3);
  Tensor<float> v({5, 4});
  for (float& x : v.flat()) x = static_cast<float>(random.normal());
  DenseRow row;
  row.prepare(scores, {0, 5}, v.view(), {}, sink_logit);
  const std::vector<KeyPos> keys = {1, 4};
  const RowQuality quality = row.compare(keys, 2, /*n_sink=*/2);

  double z = std::exp(sink_logit), kept = 0.0, all = 0.0;
  for (const double s : scores) all += std::exp(s);
  z += all;
  for (const KeyPos key : keys) kept += std::exp(scores[key]);
  double error = 0.0, raw = 0.0;
  for (Index c = 0; c < 4; ++c) {
    double dense = 0.0, sparse = 0.0;
    for (Index t = 0; t < 5; ++t) dense += std::exp(scores[t]) * static_cast<double>(v(t, c));
    for (const KeyPos key : keys) sparse += std::exp(scores[key]) * static_cast<double>(v(key, c));
    error += std::pow(sparse / (kept + std::exp(sink_logit)) - dense / z, 2);
    raw += std::pow(sparse / z - dense / z, 2);
    CHECK(std::abs(row.output()[c] - dense / z) < 1e-14);
  }
  CHECK(std::abs(quality.mass - kept / all) < 1e-14);
  CHECK(std::abs(quality.output_error - std::sqrt(error)) < 1e-14);
  CHECK(std::abs(quality.output_error_raw - std::sqrt(raw)) < 1e-14);
  const std::vector<KeyPos> everything = {0, 1, 2, 3, 4};
  CHECK(row.compare(everything, 5, 0).mass == 1.0);
  CHECK(row.compare(everything, 5, 0).output_error == 0.0);
}

TEST_CASE("observed weights and draft rows know the sinks") {
  const MemoryTrace plain = planted_trace(PlantOptions{.n_tokens = 24});
  TraceInfo info = plain.info();
  for (Index i = 0; i < info.n_layers * info.n_q; ++i)
    info.sink_logits.push_back(0.3f * static_cast<float>(i) - 1.0f);
  MemoryTrace trace(info);
  Tensor<float> q({info.n_q, 24, info.d_head}), k({info.n_kv, 24, info.d_head});
  for (Index layer = 0; layer < info.n_layers; ++layer) {
    for (Index h = 0; h < info.n_q; ++h) {
      const auto rows = plain.read_q(layer, h, {0, 24});
      std::copy_n(rows.data(), rows.count(), trace.q(layer).sub(h).data());
      if (layer == 1) std::copy_n(rows.data(), rows.count(), q.sub(h).data());
    }
    for (Index h = 0; h < info.n_kv; ++h) {
      const auto rows = plain.read_k(layer, h, {0, 24});
      std::copy_n(rows.data(), rows.count(), trace.k(layer).sub(h).data());
      if (layer == 1) std::copy_n(rows.data(), rows.count(), k.sub(h).data());
    }
  }
  const auto expected = [&](Index layer, Index h, Index pos) {
    std::vector<double> row = naive_scores(plain, layer, h, pos);
    double z = std::exp(*info.sink_logit(layer, h));
    for (const double s : row) z += std::exp(s);
    for (double& s : row) s = std::exp(s) / z;
    return row;
  };

  SelectCall call{{.layer = 1,
                   .n_tok = 24,
                   .score_scale = info.score_scale,
                   .q = q.view(),
                   .k = k.view(),
                   .sink_logits = info.layer_sink_logits(1)}};
  Selection dense;
  dense.is_dense = true;
  const ListProbs probs(call, dense);
  std::vector<float> row(24);
  for (const Index h : {Index{0}, Index{3}}) {
    probs.row(h, 20, row);
    const auto naive = expected(1, h, 20);
    for (std::size_t i = 0; i <= 20; ++i) CHECK(std::abs(row[i] - naive[i]) < 1e-6);
  }

  ThreadPool pool(1);
  const std::vector<TokenRange> calls{{9, 12}, {18, 24}};
  const auto of_calls = draft_attention_rows(trace, calls, pool);
  const auto alone = draft_attention_rows(trace, std::span(calls).first(1), pool);
  CHECK(std::ranges::equal(of_calls[0][0].flat(), alone[0][0].flat()));
  const auto& layers = of_calls[1];
  for (Index i = 0; i <= 22; ++i) {
    double mean = 0.0;
    for (Index h = 0; h < info.n_q; ++h) mean += expected(0, h, 22)[i];
    CHECK(std::abs(layers[0](22 - 18, i) - mean / static_cast<double>(info.n_q)) < 1e-6);
  }
}

}  // namespace kvscope::test::sinks_test

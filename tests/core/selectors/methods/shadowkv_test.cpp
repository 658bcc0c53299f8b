// ShadowKV's choice against loops: outliers by their least cosine, landmarks' softmax, the largest
// over group and rows.

#include "tests/core/selectors/call_fixture.hpp"
#include "tests/core/selectors/lists.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::shadowkv_test {

struct NaiveShadow {
  Index chunk, n_outliers, n_local, n_kept;
};

std::vector<KeyPos> naive_shadow_list(const CallFixture& f, const NaiveShadow& how, Index kv_head) {
  const double none = -std::numeric_limits<double>::infinity();
  const Index n_far = std::max<Index>(0, f.call.pos_begin / how.chunk - how.n_local);
  const Index d = f.k.dim(2);
  std::vector<std::vector<double>> landmarks;  // empty: no key of the chunk is alive
  std::vector<double> unlike;
  for (Index i = 0; i < n_far; ++i) {
    std::vector<double> mean(static_cast<std::size_t>(d), 0.0);
    double n = 0.0;
    for (Index t = i * how.chunk; t < (i + 1) * how.chunk; ++t) {
      if (!f.alive.is_alive(kv_head, static_cast<KeyPos>(t))) continue;
      n += 1.0;
      for (Index c = 0; c < d; ++c) mean[c] += static_cast<double>(f.k(kv_head, t, c));
    }
    for (double& x : mean) x /= n;
    double least = 1.0;
    for (Index t = i * how.chunk; t < (i + 1) * how.chunk; ++t) {
      if (!f.alive.is_alive(kv_head, static_cast<KeyPos>(t))) continue;
      double dot = 0.0, a = 0.0, b = 0.0;
      for (Index c = 0; c < d; ++c) {
        const auto x = static_cast<double>(f.k(kv_head, t, c));
        const double y = mean[c];
        dot += x * y;
        a += x * x;
        b += y * y;
      }
      least = std::min(least, dot / std::sqrt(a * b));
    }
    landmarks.push_back(n > 0.0 ? mean : std::vector<double>{});
    unlike.push_back(n > 0.0 ? -least : none);
  }
  std::vector<bool> is_kept(static_cast<std::size_t>((f.k.dim(1) - 1) / how.chunk + 1), true);
  for (Index i = 0; i < n_far; ++i) is_kept[i] = false;
  for (const KeyPos i : naive_top_k(unlike, how.n_outliers)) {
    is_kept[i] = true;
    landmarks[i].clear();
  }
  std::vector<double> scores(landmarks.size(), none);
  for (Index h = kv_head * f.group(); h < (kv_head + 1) * f.group(); ++h) {
    for (Index row = 0; row < f.call.n_tok; ++row) {
      std::vector<double> weights(landmarks.size(), 0.0);
      double sum = 0.0;
      for (std::size_t i = 0; i < landmarks.size(); ++i) {
        if (landmarks[i].empty()) continue;
        double dot = 0.0;
        for (Index c = 0; c < d; ++c) dot += static_cast<double>(f.q(h, row, c)) * landmarks[i][c];
        weights[i] = std::exp(dot * static_cast<double>(f.call.score_scale));
        sum += weights[i];
      }
      for (std::size_t i = 0; i < landmarks.size(); ++i)
        if (!landmarks[i].empty()) scores[i] = std::max(scores[i], weights[i] / sum);
    }
  }
  for (const KeyPos i : naive_top_k(scores, how.n_kept)) is_kept[i] = true;
  std::vector<KeyPos> keys;
  for (Index t = 0; t < f.k.dim(1); ++t) {
    if (is_kept[t / how.chunk] && f.alive.is_alive(kv_head, static_cast<KeyPos>(t)))
      keys.push_back(static_cast<KeyPos>(t));
  }
  return keys;
}

TEST_CASE("shadowkv: loops agree in decode and verification, with and without dead keys") {
  for (const Index n_tok : {1, 3}) {
    for (const bool has_dead : {false, true}) {
      CallFixture fixture({.n_q = 6,
                           .n_kv = 2,
                           .n_past = 101,
                           .n_tok = n_tok,
                           .phase = n_tok == 1 ? Phase::decode : Phase::verify});
      for (KeyPos pos = 20; has_dead && pos < 34; ++pos) fixture.alive.kill(1, pos);
      if (has_dead) fixture.alive.kill(0, 3);
      fixture.call.budget = Budget::parse("tokens=21");
      const Selection selection =
          made("shadowkv:page-size=4,outliers=5,local-chunks=2", fixture)->select(fixture.call);
      for (Index kv = 0; kv < 2; ++kv) {
        INFO(n_tok << " rows, dead " << has_dead << ", KV head " << kv);
        CHECK(merged(selection.at(kv)) == naive_shadow_list(fixture, {4, 5, 2, 5}, kv));
        // five chunks by score; the outliers, two whole chunks and the remainder beside them
        if (!has_dead) CHECK(selection.at(kv).scored().size() == 20);
        if (!has_dead)
          CHECK(static_cast<Index>(selection.at(kv).forced().size()) == 20 + 8 + 1 + n_tok);
      }
    }
  }
}

}  // namespace kvscope::test::shadowkv_test

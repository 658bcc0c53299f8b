// Scoring on an engine: the same lists for any number of threads, f32 close to f64, and what is
// kept follows the cache.
#include <random>

#include "core/base/parallel.hpp"
#include "core/selectors/score_engine.hpp"
#include "tests/core/selectors/call_fixture.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::score_engine_test {

std::vector<KeyPos> all_keys(const Selection& selection) {
  return {selection.keys().begin(), selection.keys().end()};
}

TEST_CASE("lists are the same for any number of threads") {
  const auto precision = GENERATE(ScorePrecision::f64, ScorePrecision::f32);
  for (const char* spec :
       {"quoka", "quoka:aggregate=mean", "quoka:scope=whole", "loki:basis=self", "sparq",
        "quest:dense-layers=0", "oracle-topk", "snapkv", "sampleattention"}) {
    for (const Index n_tok : {Index{1}, Index{40}}) {
      CallFixture fixture(
          {.n_past = 5000, .n_tok = n_tok, .phase = n_tok == 1 ? Phase::decode : Phase::prefill});
      fixture.call.budget = Budget::parse("tokens=300");
      std::vector<std::vector<KeyPos>> lists;
      for (const int n_threads : {1, 2, 7}) {
        ThreadPool pool(n_threads);
        ScoreEngine engine(precision, &pool);
        fixture.call.engine = &engine;
        lists.push_back(all_keys(made(spec, fixture)->select(fixture.call)));
      }
      INFO(spec << ", " << n_tok << " queries");
      CHECK(lists[0] == lists[1]);
      CHECK(lists[0] == lists[2]);
      if (precision == ScorePrecision::f64) {
        fixture.call.engine = nullptr;
        CHECK(lists[0] == all_keys(made(spec, fixture)->select(fixture.call)));
      }
    }
  }
}

TEST_CASE("f32 products are those of f64 to rounding, for few and many queries") {
  std::mt19937 rng(5);
  std::normal_distribution<float> normal;
  for (const Index d : {Index{8}, Index{37}, Index{128}}) {
    Tensor<float> k({203, d});
    for (float& x : k.flat()) x = normal(rng);
    for (const Index n_rows : {Index{1}, Index{3}, Index{4}, Index{5}, Index{16}, Index{40}}) {
      std::vector<double> q(static_cast<std::size_t>(n_rows * d));
      for (double& x : q) x = static_cast<double>(normal(rng));
      KeyDots exact, quick;
      quick.set_precision(ScorePrecision::f32);
      const TokenRange range{3, 200};
      exact.compute(q, n_rows, k.view(), range);
      quick.compute(q, n_rows, k.view(), range);
      std::vector<double> largest(197), naive(197, -1e30);
      quick.compute_largest(q, n_rows, k.view(), range,
                            std::vector<Index>(static_cast<std::size_t>(n_rows), 200), -1.0,
                            largest);
      for (Index r = 0; r < n_rows; ++r) {
        for (std::size_t t = 0; t < 197; ++t) {
          CHECK(std::abs(exact.row(r)[t] - quick.row(r)[t]) < 1e-4);
          naive[t] = std::max(naive[t], exact.row(r)[t]);
        }
      }
      for (std::size_t t = 0; t < 197; ++t) CHECK(std::abs(naive[t] - largest[t]) < 1e-4);
    }
  }
}

TEST_CASE("kept norms and pages follow the cache through growth and rollback") {
  std::mt19937 rng(9);
  std::normal_distribution<float> normal;
  Tensor<float> k({64, 8});
  for (float& x : k.flat()) x = normal(rng);
  ScoreEngine engine;
  CHECK(engine.inverse_norms(0, 0, k.view().range(0, 0, 40), {10, 40}, 1e-12).size() == 30);
  engine.truncate(20);
  for (Index c = 0; c < 8; ++c) k(Index{30}, c) = 2.0f;  // another token came instead
  const auto norms = engine.inverse_norms(0, 0, k.view(), {0, 64}, 1e-12);
  CHECK(std::abs(norms[30] - 1.0 / std::sqrt(32.0)) < 1e-12);
  CHECK(engine.pages(0, 0, k.view().range(0, 0, 40), 16, 16).n_pages() == 3);
  engine.truncate(33);
  CHECK(engine.pages(0, 0, k.view(), 16, 16).n_pages() == 4);
  CHECK(engine.pages(0, 0, k.view(), 16, 16).boxes()(1, 0) >= 2.0f);
}

}  // namespace kvscope::test::score_engine_test

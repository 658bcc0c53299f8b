// KeyDiff against cosines by loops.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <set>

#include "core/base/error.hpp"
#include "core/selectors/registry.hpp"
#include "tests/core/selectors/sequence.hpp"

namespace kvscope::test::keydiff_test {
namespace {

TEST_CASE("keydiff keeps the keys that differ most from the mean direction", "[selectors]") {
  const Sequence sequence = random_sequence({.n_tokens = 45, .n_decode = 6});
  for (const bool is_unit : {true, false}) {
    SelectorRun run(make_selector(is_unit ? "keydiff" : "keydiff:anchor=raw", sequence),
                    sequence.shape, {{Budget::Kind::tokens, 12.0}});
    std::vector<std::set<KeyPos>> cache(
        static_cast<std::size_t>(sequence.shape.n_layers * sequence.shape.n_kv));
    for (const auto& [phase, n_tok] : sequence.calls) {
      run_call(run, sequence, phase, n_tok);
      for (Index layer = 0; layer < sequence.shape.n_layers; ++layer) {
        const Tensor<float>& k = sequence.k[static_cast<std::size_t>(layer)];
        for (Index kv_head = 0; kv_head < sequence.shape.n_kv; ++kv_head) {
          auto& kept = cache[static_cast<std::size_t>(layer * sequence.shape.n_kv + kv_head)];
          for (Index j = run.n_keys() - n_tok; j < run.n_keys(); ++j)
            kept.insert(static_cast<KeyPos>(j));
          const auto norm = [&](Index j) {
            double sum = 0.0;
            for (Index c = 0; c < k.dim(2); ++c)
              sum += static_cast<double>(k(kv_head, j, c)) * static_cast<double>(k(kv_head, j, c));
            return std::max(std::sqrt(sum), 1e-12);
          };
          std::vector<double> anchor(static_cast<std::size_t>(k.dim(2)), 0.0);
          for (const KeyPos j : kept) {
            for (Index c = 0; c < k.dim(2); ++c) {
              anchor[static_cast<std::size_t>(c)] +=
                  static_cast<double>(k(kv_head, Index{j}, c)) / (is_unit ? norm(j) : 1.0);
            }
          }
          std::vector<double> score(static_cast<std::size_t>(run.n_keys()), 0.0);
          for (const KeyPos j : kept) {
            double dot = 0.0;
            for (Index c = 0; c < k.dim(2); ++c)
              dot += anchor[static_cast<std::size_t>(c)] *
                     static_cast<double>(k(kv_head, Index{j}, c));
            score[static_cast<std::size_t>(j)] = -dot / norm(j);
          }
          kept = naive_best(score, kept, 12);
          INFO(run.n_keys() << " keys, layer " << layer << ", KV head " << kv_head);
          CHECK(alive_keys(run.alive(layer), kv_head) == kept);
        }
      }
    }
  }
}

TEST_CASE("keydiff: copies leave first, an outlier stays", "[selectors]") {
  Sequence sequence =
      random_sequence({.n_layers = 1, .n_kv = 1, .n_tokens = 20, .chunk = 20, .n_decode = 0});
  Tensor<float>& k = sequence.k[0];
  for (Index j = 0; j < 20; ++j) {
    for (Index c = 0; c < k.dim(2); ++c) k(Index{0}, j, c) = c == (j == 7 ? 1 : 0) ? 1.0f : 0.0f;
  }
  SelectorRun run(make_selector("keydiff", sequence), sequence.shape,
                  {{Budget::Kind::tokens, 3.0}});
  run_call(run, sequence, Phase::prefill, 20);
  CHECK(alive_keys(run.alive(0), 0) == std::set<KeyPos>{0, 1, 7});  // of equal keys the first ones
}

TEST_CASE("keydiff: a share of the budget for recent keys", "[selectors]") {
  const Sequence sequence = random_sequence({.n_tokens = 30, .chunk = 30, .n_decode = 0});
  SelectorRun run(make_selector("keydiff:recent-share=0.5", sequence), sequence.shape,
                  {{Budget::Kind::tokens, 8.0}});
  run_call(run, sequence, Phase::prefill, 30);
  const auto alive = alive_keys(run.alive(0), 1);
  CHECK(alive.size() == 8);
  for (const KeyPos pos : {26, 27, 28, 29}) CHECK(alive.contains(pos));
}

}  // namespace
}  // namespace kvscope::test::keydiff_test

// Kascade: lists of anchors and of the layers that reuse them against loops; the fit against loops;
// OmniKV and TidalDecode.
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "core/attention/anchor_layers.hpp"
#include "core/base/evenly_spaced.hpp"
#include "core/base/new_file.hpp"
#include "core/base/parallel.hpp"
#include "core/selectors/artifact.hpp"
#include "core/selectors/learned.hpp"
#include "core/selectors/method_spec.hpp"
#include "core/selectors/registry.hpp"
#include "tests/core/selectors/call_fixture.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::kascade_test {

constexpr Index kGroup = 2;

/// Softmax weights of a row over all keys that it sees, [pos + 1].
std::vector<double> row_weights(const Sequence& sequence, Index layer, Index q_head, Index pos) {
  return naive_weights(sequence, layer, q_head, pos, first_keys(pos + 1));
}

/// The keys of one list: the best k - n of the tile's summed (or largest) weights before it, and
/// the n keys of the tile.
std::vector<KeyPos> naive_list(const Sequence& sequence, Index layer, std::vector<Index> q_heads,
                               Index begin, Index end, Index k, bool takes_max) {
  std::vector<double> pooled(static_cast<std::size_t>(begin), 0.0);
  for (const Index q_head : q_heads) {
    for (Index pos = begin; pos < end; ++pos) {
      const std::vector<double> weights = row_weights(sequence, layer, q_head, pos);
      for (std::size_t j = 0; j < pooled.size(); ++j)
        pooled[j] = takes_max ? std::max(pooled[j], weights[j]) : pooled[j] + weights[j];
    }
  }
  std::vector<KeyPos> list = naive_top_k(pooled, std::max<Index>(0, k - (end - begin)));
  for (Index pos = begin; pos < end; ++pos) list.push_back(static_cast<KeyPos>(pos));
  return list;
}

std::vector<Index> heads_of(Index kv_head) {
  return {kv_head * kGroup, kv_head * kGroup + 1};
}

std::vector<KeyPos> keys_of(const PlainSelection& selection, std::size_t list) {
  std::vector<KeyPos> all = selection.scored[list];
  all.insert(all.end(), selection.forced[list].begin(), selection.forced[list].end());
  std::ranges::sort(all);
  return all;
}

Sequence small_sequence(std::uint64_t seed) {
  SequenceOptions options{.n_layers = 5,
                          .group = kGroup,
                          .n_tokens = 60,
                          .chunk = 20,
                          .n_decode = 4,
                          .has_ties = false,
                          .seed = seed};
  return random_sequence(options);
}

/// A file with these anchors and this map (of all layers) for the sequence's shape.
std::string map_file(const testing::TempDir& dir, const Sequence& sequence,
                     std::vector<Index> anchors, std::vector<std::vector<Index>> map) {
  std::vector<Index> layers;
  for (Index layer = 0; layer < static_cast<Index>(map.size()); ++layer) layers.push_back(layer);
  Learned learned{.values = {{"anchors", anchors}, {"layers", layers}, {"map", map}}};
  const AttentionShape& shape = sequence.shape;
  const TraceInfo info = make_trace_info(shape.n_layers, shape.n_q, shape.n_kv, shape.d_head, 8, 8);
  const auto file = dir.path() / "map.json";
  write_new_file(file, artifact_text("kascade", learned, info), /*overwrite=*/true);
  return file.string();
}

TEST_CASE(
    "kascade: anchors keep the best keys of each tile, other layers use their anchor's lists "
    "by the map") {
  const testing::TempDir dir;
  const Sequence sequence = small_sequence(3);
  const std::vector<std::vector<Index>> map = {{0, 1}, {1, 0}, {0, 1}, {1, 1}, {0, 0}};
  const std::string spec =
      fmt::format("kascade:map={},tile=8,min-keys=1", map_file(dir, sequence, {0, 2}, map));
  constexpr Index kBudget = 14;
  SelectorRun run(selector_registry().make(spec), sequence.shape,
                  {{Budget::Kind::tokens, kBudget}});
  for (const auto& [phase, n_tok] : sequence.calls) {
    const Index begin = run.n_keys();
    const auto selections = run_call(run, sequence, phase, n_tok);
    CHECK(selections[0][0].is_dense);  // layer 0 attends to everything
    for (Index layer = 1; layer < 5; ++layer) {
      const Index anchor = layer < 2 ? 0 : 2;
      const PlainSelection& selection = selections[layer][0];
      const Index n_tiles = (n_tok + 7) / 8;
      REQUIRE(selection.owner == ListOwner::kv_head);
      REQUIRE(static_cast<Index>(selection.scored.size()) == 2 * n_tiles);
      for (Index head = 0; head < 2; ++head) {
        const Index source = layer == anchor ? head : map[layer][head];
        for (Index tile = 0; tile < n_tiles; ++tile) {
          const Index from = begin + tile * 8;
          const Index to = std::min(from + 8, begin + n_tok);
          INFO("call at " << begin << ", layer " << layer << ", head " << head << ", tile "
                          << tile);
          CHECK(keys_of(selection, static_cast<std::size_t>(head * n_tiles + tile)) ==
                naive_list(sequence, anchor, heads_of(source), from, to, kBudget, false));
        }
      }
    }
  }
}

TEST_CASE(
    "omnikv: one list by the largest weight, dense around its anchors; tidaldecode: a list "
    "per query head") {
  const Sequence sequence = small_sequence(5);
  SelectorRun omni(selector_registry().make("omnikv"), sequence.shape, {Budget::parse("tokens=9")});
  SelectorRun tidal(selector_registry().make("tidaldecode"), sequence.shape,
                    {Budget::parse("tokens=9")});
  for (const auto& [phase, n_tok] : sequence.calls) {
    const Index pos = omni.n_keys();
    const auto of_omni = run_call(omni, sequence, phase, n_tok);
    const auto of_tidal = run_call(tidal, sequence, phase, n_tok);
    for (std::size_t layer = 0; layer < 5; ++layer) {
      INFO("call at " << pos << ", layer " << layer);
      // The anchor 2 and layer 3 after it.
      CHECK(of_omni[layer][0].is_dense == (phase == Phase::prefill || layer < 4));
      CHECK(of_tidal[layer][0].is_dense == (phase == Phase::prefill || layer < 3));
    }
    if (phase == Phase::prefill) continue;
    CHECK(keys_of(of_omni[4][0], 0) ==
          naive_list(sequence, 2, {0, 1, 2, 3}, pos, pos + 1, 9, true));
    for (Index head = 0; head < 4; ++head) {
      CHECK(keys_of(of_tidal[3][0], static_cast<std::size_t>(head)) ==
            naive_list(sequence, 2, {head}, pos, pos + 1, 9, false));
      CHECK(keys_of(of_tidal[4][0], static_cast<std::size_t>(head)) ==
            keys_of(of_tidal[3][0], static_cast<std::size_t>(head)));
    }
  }
}

TEST_CASE("kascade: min-keys is a floor under ratios alone") {
  CallFixture fixture({.n_past = 99, .n_tok = 1, .phase = Phase::decode, .layer = 2});
  const auto n_kept = [&](const char* budget) {
    fixture.context = {};
    fixture.call.budget = Budget::parse(budget);
    return made("kascade:anchors=0/2,min-keys=20", fixture)->select(fixture.call).list(0, 0).size();
  };
  CHECK(n_kept("ratio=0.1") == 20);
  CHECK(n_kept("ratio=0.5") == 50);
  CHECK(n_kept("tokens=7") == 7);
}

TEST_CASE("the fit of kascade is that of loops") {
  PlantOptions plant{
      .n_layers = 4, .n_tokens = 64, .sink = 0.5, .has_sink_logits = true, .seed = 9};
  const MemoryTrace text = planted_trace(plant);
  auto selector = selector_registry().make("kascade:n-anchors=2,min-keys=6,fit-rows=5");
  ThreadPool pool(3);
  selector->calibrate(text, text.info().layers, pool);
  const Learned learned = selector->learned();

  const std::vector<Index> rows = evenly_spaced(32, 64, 5);
  const auto weights = [&](Index layer, Index head, Index pos) {
    std::vector<double> sum(static_cast<std::size_t>(pos + 1), 0.0);
    for (const Index q_head : heads_of(head)) {
      const std::vector<double> row = naive_row(text, layer, q_head, pos);
      for (std::size_t j = 0; j < sum.size(); ++j) sum[j] += row[j];
    }
    return sum;
  };
  const auto keys = [&](Index layer, Index head, Index pos) {
    std::vector<double> past = weights(layer, head, pos);
    past.pop_back();
    std::vector<KeyPos> list = naive_top_k(past, 6 - 1);
    list.push_back(static_cast<KeyPos>(pos));
    return list;
  };
  const auto mass = [](const std::vector<double>& row, const std::vector<KeyPos>& list) {
    double sum = 0.0;
    for (const KeyPos key : list) sum += row[key];
    return sum;
  };
  Tensor<double> of_layers(Shape{4, 4});
  std::map<std::pair<Index, Index>, std::vector<Index>> maps;
  for (Index a = 0; a < 4; ++a) {
    for (Index b = a; b < 4; ++b) {
      for (Index h = 0; h < 2; ++h) {
        std::vector<double> sims;
        for (Index other = 0; other < 2; ++other) {
          double least = 1e9;
          for (const Index pos : rows) {
            const std::vector<double> row = weights(b, h, pos);
            least = std::min(least, mass(row, keys(a, other, pos)) / mass(row, keys(b, h, pos)));
          }
          sims.push_back(least);
        }
        of_layers(a, b) += 0.5 * std::max(sims[0], sims[1]);
        maps[{a, b}].push_back(sims[1] > sims[0] ? 1 : 0);
      }
    }
  }
  const AnchorLayers best = best_anchor_layers(of_layers.view(), 2);
  CHECK(learned.values["anchors"] == nlohmann::ordered_json(best.anchors));
  for (Index layer = 0, anchor = 0; layer < 4; ++layer) {
    if (layer == best.anchors[1]) anchor = layer;
    CHECK(learned.values["map"][layer] == nlohmann::ordered_json(maps[{anchor, layer}]));
  }
  CHECK(static_cast<double>(learned.values["similarity"]) == Catch::Approx(best.score / 4.0));
}

}  // namespace kvscope::test::kascade_test

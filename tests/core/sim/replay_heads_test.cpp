// Replay by KV heads: the bits of a whole layer for every method that may go by heads.
#include "core/sim/replay_heads.hpp"

#include <cstring>
#include <limits>

#include "core/base/error.hpp"
#include "core/selectors/registry.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::replay_heads_test {

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

bool same_bits(const PairReplay& a, const PairReplay& b) {
  for (std::size_t m = 0; m < a.values.size(); ++m) {
    if (!same_bits(a.values[m], b.values[m])) return false;
  }
  return a.is_dense == b.is_dense && same_bits(a.mass_rows, b.mass_rows) && a.ages == b.ages;
}

std::optional<Budget> budget_for(const SelectorCaps& caps) {
  if (caps.budgets.empty()) return std::nullopt;
  const auto takes = [&](Budget::Kind kind) {
    return std::ranges::find(caps.budgets, kind) != caps.budgets.end();
  };
  if (takes(Budget::Kind::tokens)) return Budget::parse("24");
  if (takes(Budget::Kind::mass)) return Budget::parse("p=0.8");
  if (takes(Budget::Kind::ratio)) return Budget::parse("ratio=0.3");
  return Budget{Budget::Kind::pages, 3.0};
}

std::vector<std::string> all_methods() {
  std::vector<std::string> all = {"quest:page-size=4+coarsen:owner=layer,page=8",
                                  "loki+every=2",
                                  "oracle-pages:page-size=4+every=3",
                                  "quest:page-size=4",
                                  "quoka:n-queries=4",
                                  "h2o@tokens=40+quest:page-size=4"};
  for (const SelectorEntry& entry : selector_registry().entries()) {
    all.push_back(entry.name);
    for (const auto& [preset, assignments] : entry.presets) all.push_back(preset);
  }
  return all;
}

TEST_CASE("replay by KV heads has the bits of whole layers, for every method that may") {
  PlantOptions plant;
  plant.n_tokens = 700;  // beyond the windows and blocks of every method's own settings
  plant.chunk = 160;
  plant.n_q = 6;
  plant.n_kv = 3;
  plant.d_head = 16;
  plant.sink = 1.0;
  plant.band = 1.0;
  plant.has_sink_logits = true;
  const MemoryTrace trace = planted_trace(plant, [](TraceInfo& info) {
    info.n_prompt = 640;
    info.window = {std::nullopt, 8};
  });
  ThreadPool pool(2);
  int n_same = 0;
  for (const std::string& spec : all_methods()) {
    const SelectorCaps caps = MethodSpec(spec).caps();
    const std::vector<ReplayPair> pairs = {{MethodSpec(spec), budget_for(caps)}};
    for (const Phase phase : {Phase::prefill, Phase::decode}) {
      if (!caps.is_defined(phase) || !chooses_by_head(pairs)) continue;
      INFO(spec << " in " << enum_name(phase));
      ReplayOptions options{
          .calls = {.phase = phase, .chunk = 160}, .dense_layers = 0, .best_mass = true};
      const auto replay = [&](double most) {
        options.most_layer_bytes = most;
        return replay_layers(trace, nullptr, {0, 1}, pairs, options, pool);
      };
      std::vector<LayerReplay> whole;
      try {
        whole = replay(std::numeric_limits<double>::infinity());
      } catch (const ConfigError&) {
        continue;  // it needs what the trace does not have, in any case
      }
      REQUIRE(goes_by_head(trace.info(), pairs, [&] {
        options.most_layer_bytes = 0.0;
        return options;
      }()));
      const std::vector<LayerReplay> by_head = replay(0.0);
      REQUIRE(by_head.size() == whole.size());
      for (std::size_t i = 0; i < whole.size(); ++i) {
        CHECK(by_head[i].q_heads == whole[i].q_heads);
        CHECK(by_head[i].row_begin == whole[i].row_begin);
        CHECK(same_bits(by_head[i].pairs[0], whole[i].pairs[0]));
      }
      ++n_same;
    }
  }
  CHECK(n_same > 60);
}

}  // namespace kvscope::test::replay_heads_test

// Every method and preset on traces of random shapes, with copies of keys, zero keys and pages of
// one token: no list may hold more attention than the oracle's of the same size.
#include <mutex>

#include "core/attention/top_mass.hpp"
#include "core/base/parallel.hpp"
#include "core/selectors/registry.hpp"
#include "core/sim/replay.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::random_shapes_test {

struct RandomTrace {
  MemoryTrace trace;
  MemoryTrace text;  // of the same shape, to learn from
  Index budget = 1;
  Index chunk = 1;
};

/// n_q 1..16, groups of 1..8, T 1..140 (or n_tokens), d 8..128.
RandomTrace random_trace(std::uint64_t seed, std::optional<Index> n_tokens = std::nullopt) {
  Random random(seed);
  PlantOptions plant;
  const Index group = 1 + random.below(8);
  plant.n_kv = 1 + random.below(n_tokens ? 1 : std::max<Index>(1, 16 / group));
  plant.n_q = plant.n_kv * group;
  constexpr Index kWidths[] = {8, 12, 16, 40, 64, 128};
  plant.d_head = kWidths[random.below(n_tokens ? 2 : 6)];
  plant.n_tokens = n_tokens.value_or(1 + random.below(random.below(3) == 0 ? 140 : 24));
  plant.n_layers = 3;
  plant.sink = random.uniform() * 3.0;
  plant.band = random.uniform() * 3.0;
  plant.query_scale = 0.2 + 3.0 * random.uniform();
  for (Index i = 0; i < plant.n_tokens / 8; ++i) {
    plant.duplicates.emplace_back(random.below(plant.n_tokens), random.below(plant.n_tokens));
    if (i % 3 == 0) plant.zero_keys.push_back(random.below(plant.n_tokens));
  }
  plant.seed = seed;
  const Index largest_chunk = n_tokens ? 700 : 40;
  RandomTrace out{.chunk = n_tokens ? largest_chunk : 1 + random.below(largest_chunk)};
  plant.chunk = out.chunk;
  out.budget = 1 + random.below(std::min<Index>(plant.n_tokens, 60));
  out.trace = planted_trace(plant);
  plant.seed = seed + 1000;
  plant.n_tokens = 400;
  plant.duplicates.clear();
  plant.zero_keys.clear();
  out.text = planted_trace(plant);
  return out;
}

/// Every name and preset; methods of pages also with pages of one token.
std::vector<std::string> all_specs() {
  std::vector<std::string> specs;
  for (const SelectorEntry& entry : selector_registry().entries()) {
    if (entry.caps.needs_rotation || entry.caps.needs_projection) continue;  // of models alone
    specs.push_back(entry.name);
    for (const auto& [preset, assignments] : entry.presets) {
      // Planted traces have no indexer.
      if (!selector_registry().make(preset)->caps().needs_side) specs.push_back(preset);
    }
    std::string one_token;
    for (const SelectorOption& option : entry.options) {
      for (const std::string_view name :
           {"page-size", "block", "block-size", "block-q", "block-k"}) {
        if (option.name == name) one_token += (one_token.empty() ? ":" : ",") + option.name + "=1";
      }
    }
    if (!one_token.empty()) specs.push_back(entry.name + one_token);
  }
  return specs;
}

std::optional<Budget> budget_for(const SelectorCaps& caps, Index n_tokens) {
  if (caps.budgets.empty()) return std::nullopt;
  const auto value = static_cast<double>(n_tokens);
  switch (caps.budgets.front()) {
    case Budget::Kind::mass:
      return Budget{Budget::Kind::mass, 0.5};
    case Budget::Kind::ratio:
      return Budget{Budget::Kind::ratio, 0.3};
    case Budget::Kind::pages:
      return Budget{Budget::Kind::pages, 2.0};
    case Budget::Kind::tokens:
      return Budget{Budget::Kind::tokens, value};
  }
  return std::nullopt;
}

/// What went wrong in some row.
struct Faults {
  Index n_rows = 0;
  Index unordered = 0;  // not ascending, or twice
  Index unseen = 0;     // beyond the query
  Index above_oracle = 0;
  Index no_number = 0;  // errors of the output
};

Faults replay_faults(const RandomTrace& random, const std::string& spec, Phase phase) {
  ReplayOptions options{.calls = {.phase = phase, .chunk = random.chunk, .steps = 3, .drafts = 2},
                        .rows_per_chunk = 3,
                        .calibration = &random.text};
  Faults faults;
  std::mutex mutex;
  options.on_row = [&](const MeasuredRow& row) {
    const auto& keys = row.kept.front();
    double mass = 0.0;
    bool is_seen = true;
    for (KeyPos key : keys) {
      is_seen = is_seen && key >= row.visible.begin && key < row.visible.end;
      if (is_seen) mass += row.probs[key - row.visible.begin];
    }
    std::vector<double> weights(row.probs.begin(), row.probs.end());
    const TopMass oracle(weights);
    const bool is_ascending =
        std::adjacent_find(keys.begin(), keys.end(), std::greater_equal<>()) == keys.end();
    const std::lock_guard lock(mutex);
    ++faults.n_rows;
    faults.unseen += is_seen ? 0 : 1;
    faults.unordered += is_ascending ? 0 : 1;
    faults.above_oracle += mass <= oracle.mass(static_cast<Index>(keys.size())) + 1e-12 ? 0 : 1;
  };
  const SelectorCaps caps = selector_registry().make(spec)->caps();
  ThreadPool pool(1);
  const auto layers = replay_layers(random.trace, &random.trace, {2},
                                    {{spec, budget_for(caps, random.budget)}}, options, pool);
  for (const double error : layers[0].pairs[0].of(ReplayMetric::output_error))
    faults.no_number += std::isfinite(error) ? 0 : 1;
  return faults;
}

void check_shape(const RandomTrace& random, std::uint64_t seed, Phase phase) {
  const TraceInfo& info = random.trace.info();
  for (const std::string& spec : all_specs()) {
    INFO(spec << " in " << enum_name(phase) << ", seed " << seed << ": n_q " << info.n_q
              << ", n_kv " << info.n_kv << ", d " << info.d_head << ", T " << info.n_tokens
              << ", chunk " << random.chunk << ", budget " << random.budget);
    const Faults faults = replay_faults(random, spec, phase);
    CHECK(faults.n_rows > 0);
    CHECK(faults.unordered == 0);
    CHECK(faults.unseen == 0);
    CHECK(faults.above_oracle == 0);
    CHECK(faults.no_number == 0);
  }
}

TEST_CASE("on random shapes no method keeps more than the oracle of its size") {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    const RandomTrace random = random_trace(seed);
    check_shape(random, seed, Phase::prefill);
    // a decode step needs one token before it, a verification of two drafts three
    if (random.trace.info().n_tokens < 4) continue;
    check_shape(random, seed, Phase::decode);
    check_shape(random, seed, Phase::verify);
  }
}

TEST_CASE("the shortest contexts: one to three tokens") {
  for (Index n_tokens = 1; n_tokens <= 3; ++n_tokens)
    check_shape(random_trace(40 + static_cast<std::uint64_t>(n_tokens), n_tokens), 0,
                Phase::prefill);
}

TEST_CASE("a context of 3000 tokens keeps the order of mass too") {
  check_shape(random_trace(77, 3000), 77, Phase::decode);
}

}  // namespace kvscope::test::random_shapes_test

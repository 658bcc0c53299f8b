// What every analysis of a trace must do, on a trace with attention sinks, a window and groups of
// heads: the same bits for any number of threads and from layers that were measured elsewhere, one
// token is enough or refused in a sentence, a stop stops.
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "analysis/base/analysis.hpp"
#include "analysis/base/layer_store.hpp"
#include "core/base/progress.hpp"
#include "core/trace/result.hpp"
#include "tests/analysis/kinds/analyses.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::conformance_test {

using test::analyses;
using test::Analysis;

/// Layer 1 has a window.
MemoryTrace windowed_trace(Index n_tokens) {
  test::PlantOptions plant{.n_layers = 3, .n_q = 8, .n_tokens = n_tokens, .has_sink_logits = true};
  MemoryTrace trace = test::planted_trace(plant, [](TraceInfo& info) { info.window[1] = 20; });
  std::vector<TokenId> tokens;
  for (Index t = 0; t < n_tokens; ++t) tokens.push_back(static_cast<TokenId>(t % 13));
  trace.set_tokens(tokens);
  return trace;
}

/// Keeps the layers of a first run, and knows them in those that follow.
class Stored final : public LayersBeside {
 public:
  using Layers = std::map<std::pair<std::string, Index>, std::vector<std::byte>>;
  Stored(MemoryResult& to, Layers& layers)
      : LayersBeside(to), layers_(layers), knows_all_(!layers.empty()) {}
  bool knows(Index) const override { return knows_all_; }
  void restore(const std::string& name, Index slot, std::span<std::byte> values) const override {
    const auto& from = layers_.at({name, slot});
    REQUIRE(from.size() == values.size());
    std::copy(from.begin(), from.end(), values.begin());
  }
  void keep(const std::string& name, Index slot, std::span<const std::byte> values) override {
    layers_[{name, slot}].assign(values.begin(), values.end());
  }

 private:
  Layers& layers_;
  bool knows_all_;
};

void require_same(const MemoryResult& a, const MemoryResult& b) {
  CHECK(a.summary().dump() == b.summary().dump());
  REQUIRE(a.arrays().size() == b.arrays().size());
  for (const ResultArray& array : a.arrays()) {
    INFO(array.name);
    with_type(array.type, [&](auto zero) {
      using T = decltype(zero);
      const auto one = a.values<T>(array.name);
      const auto other = b.values<T>(array.name);
      REQUIRE(one.size() == other.size());
      CHECK(std::memcmp(one.data(), other.data(), one.size_bytes()) == 0);
    });
  }
}

TEST_CASE("analyses: the same bits with 1 and 3 threads, and from layers measured elsewhere") {
  const MemoryTrace trace = windowed_trace(300);
  ThreadPool one_thread(1);
  ThreadPool three_threads(3);
  for (const Analysis& analysis : analyses()) {
    INFO(analysis.name);
    MemoryResult one, three, first, again;
    const auto summary = analysis.run(trace, {one, one_thread});
    CHECK(summary.dump() == one.summary().dump());
    analysis.run(trace, {three, three_threads});
    require_same(one, three);

    if (!analysis.by_layer) continue;
    Stored::Layers layers;
    Stored keeps(first, layers);
    analysis.run(trace, {keeps, one_thread});
    REQUIRE(!layers.empty());
    Stored knows(again, layers);
    analysis.run(trace, {knows, one_thread});
    require_same(one, first);
    require_same(one, again);
  }
}

TEST_CASE("analyses: one token is enough, or refused in a sentence") {
  const MemoryTrace trace = windowed_trace(1);
  ThreadPool pool(2);
  for (const Analysis& analysis : analyses()) {
    INFO(analysis.name);
    MemoryResult result;
    if (analysis.takes_a_token) {
      CHECK_NOTHROW(analysis.run(trace, {result, pool}));
      CHECK(result.summary().value("layers", nlohmann::ordered_json::array({0, 1, 2})).size() == 3);
    } else {
      CHECK_THROWS_AS(analysis.run(trace, {result, pool}), ConfigError);
    }
  }
}

TEST_CASE("analyses: a stop ends them") {
  const MemoryTrace trace = windowed_trace(300);
  ThreadPool pool(2);
  std::stop_source stop;
  stop.request_stop();
  for (const Analysis& analysis : analyses()) {
    INFO(analysis.name);
    MemoryResult result;
    CHECK_THROWS_AS(analysis.run(trace, {result, pool, {}, stop.get_token()}), Interrupted);
  }
}

}  // namespace kvscope::conformance_test

// Traces whose layers differ in KV heads, channels, scores and sinks: every layer's numbers are
// those of a trace that has nothing but layers of its shape.
#include "analysis/sweep/sweep.hpp"
#include "core/base/error.hpp"
#include "core/trace/part.hpp"
#include "tests/analysis/kinds/analyses.hpp"
#include "tests/analysis/kinds/on_pool.hpp"

namespace kvscope::test::layer_shapes_test {

/// As Gemma 4 and MiMo: layers 1 and 3 have a window, fewer KV heads that are wider, another scale
/// and sinks; layer 3 attends to the keys of layer 1.
MemoryTrace of_two_shapes(bool has_windows = true) {
  PlantOptions options{.n_layers = 4, .n_q = 4, .n_kv = 2, .d_head = 8, .n_tokens = 160};
  options.sink = options.band = 0.3;
  return planted_trace(options, [&](TraceInfo& info) {
    const LayerShape main = info.main_shape();
    const LayerShape other{.n_kv = 1, .d_head = 16, .score_scale = 0.2f, .score_cap = 5.0f};
    info.layer_shapes = {main, other, main, other};
    info.layer_shapes[3].keys_of = 1;
    if (has_windows) info.window = {std::nullopt, 40, std::nullopt, 40};
    info.sink_logits.assign(16, -std::numeric_limits<float>::infinity());
    std::fill_n(info.sink_logits.begin() + 4, 4, 0.5f);
  });
}

/// The same numbers of some layers, in a trace that knows no other shape.
MemoryTrace alone(MemoryTrace& trace, const std::vector<Index>& layers) {
  TraceInfo info = with_layers(trace.info(), layers);
  REQUIRE(info.layer_shapes.empty());
  MemoryTrace copy(info);
  for (const Index layer : layers) {
    const auto copy_rows = [](TensorView<float> from, TensorView<float> to) {
      REQUIRE(from.shape() == to.shape());
      std::copy_n(from.data(), from.shape().count(), to.data());
    };
    copy_rows(trace.q(layer), copy.q(layer));
    copy_rows(trace.k(layer), copy.k(layer));
    copy_rows(trace.v(layer), copy.v(layer));
  }
  copy.set_tokens({trace.tokens().begin(), trace.tokens().end()});
  return copy;
}

const std::vector<std::vector<Index>> kGroups = {{0, 2}, {1, 3}};

TEST_CASE(
    "a trace of layers that differ names the shape of each, and a part of one shape is plain") {
  MemoryTrace trace = of_two_shapes();
  const TraceInfo& info = trace.info();
  CHECK(layers_by_shape(info) == kGroups);
  const TraceInfo part = with_layers(info, {1, 3});
  CHECK(part.layer_shapes.empty());
  CHECK(part.main_shape().is_like(info.shape(1)));
  CHECK(part.kv_heads == std::vector<Index>{0});
  CHECK(info.kv_heads_of(0) == std::vector<Index>{0, 1});
  CHECK(info.layer_sink_logits(0).empty());
  CHECK(info.layer_sink_logits(1).size() == 4);
  CHECK(trace.read_k(1, 0, {0, 3}).dim(1) == 16);
  CHECK_THROWS_WITH(trace.read_k(1, 1, {0, 3}), ContainsSubstring("KV head 1 was not recorded"));
  // layer 0's own number, whatever is said of the whole
  CHECK(naive_row(trace, 1, 3, 80).size() == 40);
}

TEST_CASE("every analysis gives a layer the numbers that it has among its own kind") {
  MemoryTrace trace = of_two_shapes();
  ThreadPool pool(2);
  for (const Analysis& analysis : analyses()) {
    INFO(analysis.name);
    MemoryResult result;
    const bool is_refused =
        analysis.name == "quest" || analysis.name == "quoka" || analysis.name == "geometry";
    if (is_refused) {
      CHECK_THROWS_WITH(
          analysis.run(trace, {result, pool}),
          ContainsSubstring("2 KV heads of 8 channels in layers (0, 2); 1 KV heads of "
                            "16 channels in layers (1, 3)"));
    }
    const auto whole = is_refused ? nlohmann::ordered_json() : analysis.run(trace, {result, pool});
    for (const std::vector<Index>& group : kGroups) {
      const bool asks_layer_0 = analysis.name == "ladder" || analysis.name == "attention-map";
      if (asks_layer_0 && group == kGroups[1]) continue;
      const MemoryTrace only = alone(trace, group);
      MemoryResult apart, seen;
      const auto expected = analysis.run(only, {apart, pool});
      const auto part =
          analysis.run(TracePart(trace, with_layers(trace.info(), group)), {seen, pool});
      CHECK(part == expected);
      if (is_refused || !expected.contains("layers")) continue;
      for (const auto& layer : expected["layers"]) {
        const auto& found = whole["layers"];
        INFO(layer.dump() << "\n" << found.dump());
        CHECK(std::ranges::find(found, layer) != found.end());
      }
    }
  }
}

std::vector<ReplayPair> pairs_of(const std::vector<std::string>& methods) {
  std::vector<ReplayPair> pairs;
  for (const std::string& method : methods)
    pairs.push_back({MethodSpec(method), Budget{Budget::Kind::tokens, 24.0}});
  return pairs;
}

TEST_CASE("replay takes layers of each shape as they are") {
  ThreadPool pool(2);
  const std::vector<ReplayPair> pairs = pairs_of({"quest", "quoka", "snapkv"});
  for (const bool has_windows : {true, false}) {
    MemoryTrace trace = of_two_shapes(has_windows);
    const ReplayOptions options{.calls = {.chunk = 32}, .dense_layers = 0};
    const auto found = replay_layers(trace, nullptr, {0, 1, 2, 3}, pairs, options, pool);
    REQUIRE(found.size() == 4);
    for (const std::vector<Index>& group : kGroups) {
      const MemoryTrace only = alone(trace, group);
      const auto expected = replay_layers(only, nullptr, group, pairs, options, pool);
      for (const LayerReplay& layer : expected) {
        const LayerReplay& other = found[static_cast<std::size_t>(layer.layer)];
        CHECK(other.layer == layer.layer);
        CHECK(other.has_window == (has_windows && layer.layer % 2 == 1));
        for (std::size_t p = 0; p < pairs.size(); ++p)
          CHECK(other.pairs[p].mass_rows == layer.pairs[p].mass_rows);
      }
    }
  }
}

TEST_CASE("what a method finds in one layer does not serve layers of another shape") {
  ThreadPool pool(2);
  const ReplayOptions options{.calls = {.chunk = 32}};
  const auto pairs = pairs_of({"lessismore"});
  CHECK_NOTHROW(replay_layers(of_two_shapes(true), nullptr, {0, 2}, pairs, options, pool));
  CHECK_NOTHROW(replay_layers(of_two_shapes(false), nullptr, {0}, pairs, options, pool));
  CHECK_THROWS_WITH(replay_layers(of_two_shapes(false), nullptr, {0, 2}, pairs, options, pool),
                    ContainsSubstring("lessismore: what it finds in one layer serves others"));
}

TEST_CASE("shapes that contradict one another are refused") {
  const auto refused = [](const std::function<void(TraceInfo&)>& change, const std::string& words) {
    TraceInfo info = of_two_shapes().info();
    info.n_vocab = 10;
    change(info);
    CHECK_THROWS_WITH(check_trace_info(info), ContainsSubstring(words));
  };
  refused([](TraceInfo& info) { info.layer_shapes.pop_back(); }, "one per layer (4), found 3");
  refused([](TraceInfo& info) { info.layer_shapes[1].n_kv = 3; },
          "n_q of layer 1: expected a multi");
  refused([](TraceInfo& info) { info.layer_shapes[1].d_head = 0; },
          "d_head of layer 1: expected 1");
  refused([](TraceInfo& info) { info.layer_shapes[2].score_scale = 0.0f; }, "of layer 2: expected");
  refused([](TraceInfo& info) { info.layer_shapes[1].keys_of = 1; }, "keys_of of layer 1");
  refused([](TraceInfo& info) { info.layer_shapes[2].keys_of = 1; }, "keys of its own in as many");
  refused([](TraceInfo& info) { info.n_kv = 1; }, "expected those of layer 0 (2, 8");
  refused([](TraceInfo& info) { info.sink_logits[1] = 1.0f; }, "layer 0, query head 1");
}

}  // namespace kvscope::test::layer_shapes_test

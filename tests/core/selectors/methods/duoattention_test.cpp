// DuoAttention: gates measured by loops, heads named by share and threshold, lists of both kinds of
// heads.
#include <fmt/format.h>

#include "core/base/evenly_spaced.hpp"
#include "core/base/parallel.hpp"
#include "core/selectors/learned.hpp"
#include "core/selectors/method_spec.hpp"
#include "core/selectors/registry.hpp"
#include "tests/core/selectors/call_fixture.hpp"
#include "tests/core/selectors/lists.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::duoattention_test {

constexpr const char* kSmall = "duoattention:n-sink=2,n-recent=4,fit-rows=6";

/// KV head 0 of every layer looks back to a needle, KV head 1 to its own key.
MemoryTrace text_of(unsigned seed, bool has_sink_logits = false) {
  PlantOptions plant{.n_layers = 3,
                     .n_q = 4,
                     .n_kv = 2,
                     .d_head = 8,
                     .n_tokens = 60,
                     .aim = 6.0,
                     .needles = {{9, 10, 60}},
                     .has_sink_logits = has_sink_logits,
                     .seed = seed};
  return planted_trace(plant);
}

double naive_gate(const TraceSource& text, Index layer, Index kv_head) {
  double changed = 0.0;
  double whole = 0.0;
  const TraceInfo& info = text.info();
  const Tensor<float> v = text.read_v(layer, kv_head, {0, info.n_tokens});
  for (const Index pos : evenly_spaced(6, info.n_tokens, 6)) {
    for (Index q_head = kv_head * 2; q_head < kv_head * 2 + 2; ++q_head) {
      std::vector<double> scores = naive_scores(text, layer, q_head, pos);
      double all = info.sink_logit(layer, q_head) ? std::exp(*info.sink_logit(layer, q_head)) : 0.0;
      double kept = all;
      for (Index j = 0; j <= pos; ++j) {
        const double e = std::exp(scores[j]);
        all += e;
        if (j < 2 || j > pos - 4) kept += e;
      }
      for (Index c = 0; c < info.d_head; ++c) {
        double full = 0.0;
        double streamed = 0.0;
        for (Index j = 0; j <= pos; ++j) {
          const double e = std::exp(scores[j]) * static_cast<double>(v(j, c));
          full += e / all;
          if (j < 2 || j > pos - 4) streamed += e / kept;
        }
        changed += (full - streamed) * (full - streamed);
        whole += full * full;
      }
    }
  }
  return std::min(1.0, std::sqrt(changed / whole));
}

std::unique_ptr<Selector> fitted(const std::string& spec, const TraceSource& text,
                                 int n_threads = 1) {
  auto selector = selector_registry().make(spec);
  ThreadPool pool(n_threads);
  selector->calibrate(text, text.info().layers, pool);
  return selector;
}

TEST_CASE("duoattention: a gate is the change of the head's output without the keys between") {
  for (const bool has_sink_logits : {false, true}) {
    const MemoryTrace text = text_of(3, has_sink_logits);
    const Learned learned = fitted(kSmall, text)->learned();
    CHECK(learned.values == fitted(kSmall, text, 3)->learned().values);
    for (Index layer = 0; layer < 3; ++layer) {
      for (Index head = 0; head < 2; ++head) {
        const double gate = learned.values["gates"][layer][head];
        CHECK(gate == Catch::Approx(naive_gate(text, layer, head)).epsilon(1e-6));
      }
    }
  }
}

TEST_CASE(
    "duoattention: heads with the highest gates keep everything, the others sinks and window") {
  const MemoryTrace text = text_of(3);
  const Learned learned = fitted(kSmall, text)->learned();
  std::vector<double> gates;
  for (const auto& layer : learned.values["gates"]) {
    for (const double gate : layer) gates.push_back(gate);
  }
  for (const double share : {0.0, 0.2, 0.5, 1.0}) {
    auto selector = fitted(fmt::format("{},share={}", kSmall, share), text);
    for (Index layer = 0; layer < 3; ++layer) {
      CallFixture fixture({.d_head = 8, .n_past = 40, .n_tok = 5, .layer = layer});
      fixture.alive.kill(1, 30);
      AttentionShape shape = fixture.attention();
      shape.n_layers = 3;
      selector->reset(shape);
      const Selection selection = selector->select(fixture.call);
      for (Index head = 0; head < 2; ++head) {
        const double own = gates[layer * 2 + head];
        Index n_before = 0;
        for (std::size_t i = 0; i < gates.size(); ++i)
          n_before +=
              gates[i] > own || (gates[i] == own && static_cast<Index>(i) < layer * 2 + head) ? 1
                                                                                              : 0;
        const bool retrieves = n_before < std::lround(share * 6.0);
        std::vector<KeyPos> expected;
        for (Index j = 0; j < 45; ++j) {
          if (head == 1 && j == 30) continue;
          if (retrieves || j < 2 || j > 40 - 4) expected.push_back(static_cast<KeyPos>(j));
        }
        INFO("share " << share << ", layer " << layer << ", head " << head);
        CHECK(merged(selection.list(head, 0)) == expected);
        CHECK(merged(selection.list(head, 4)) == expected);
      }
      const SelectCost cost = selector->cost(fixture.call, selection);
      CHECK(cost.score_flops + cost.score_bytes + cost.metadata_bytes == 0.0);
    }
  }
}

TEST_CASE("duoattention: by=threshold takes gates of at least the threshold") {
  const MemoryTrace text = text_of(5);
  const Learned learned = fitted(kSmall, text)->learned();
  const double least = learned.values["gates"][1][0];
  auto selector = fitted(fmt::format("{},by=threshold,threshold={:.17g}", kSmall, least), text);
  CallFixture fixture({.d_head = 8, .n_past = 40, .n_tok = 1, .phase = Phase::decode, .layer = 1});
  selector->reset(fixture.attention());
  const Selection selection = selector->select(fixture.call);
  const bool second = static_cast<double>(learned.values["gates"][1][1]) >= least;
  CHECK((selection.is_dense || selection.list(0, 0).size() == 41));
  CHECK(selection.is_dense == second);
}

TEST_CASE("duoattention: a text that is too short is named") {
  const MemoryTrace text = text_of(3);
  CHECK_SAYS(fitted("duoattention", text), "more than n-sink + n-recent = 384");
}

}  // namespace kvscope::test::duoattention_test

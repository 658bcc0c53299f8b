// What a token reads, against single rows and the kept keys of the same replay.
#include "gui/model/tokens/token_reading.hpp"

#include "support/planted_trace.hpp"
#include "tests/gui_model/job_context.hpp"
#include "tests/gui_model/methods/kept_rows.hpp"
#include "tests/support/test.hpp"

namespace kvscope::gui::test::token_reading_test {

using kvscope::test::planted_trace;
using kvscope::test::PlantOptions;

PlantOptions plant() {
  return PlantOptions{.n_tokens = 160, .chunk = 16, .sink = 1.0, .band = 1.0, .seed = 5};
}

LossRequest asking(const char* method, LossHeads heads) {
  return LossRequest{.layer = 1,
                     .q_head = 2,
                     .chunk = 16,
                     .spec = method,
                     .budget = Budget{Budget::Kind::tokens, 12.0},
                     .heads = heads};
}

TEST_CASE("a head's outcomes are the keys that the method keeps, told apart by rule and score") {
  const auto trace = planted_trace(plant());
  TestJob job;
  for (const char* method : {"quoka", "streamingllm", "oracle-topk"}) {
    const LossRequest request = asking(method, LossHeads::head);
    const MethodSelections selections = method_selections(trace, nullptr, request, job.context);
    CHECK_FALSE(selections.layers.front().is_dense());
    const auto kept = kept_rows(trace, request, job.context);
    REQUIRE(kept.size() > 100);
    for (const KeptRow& row : kept) {
      const Reading reading =
          reading_of(trace, {1, 2, row.pos, LossHeads::head}, &selections, nullptr, job.context);
      REQUIRE(reading.outcomes.of.size() == static_cast<std::size_t>(row.visible.size()));
      CHECK(reading.other_outcomes.of.empty());
      std::vector<KeyPos> keys;
      for (Index key = row.visible.begin; key < row.visible.end; ++key) {
        if (reading.outcomes.keeps(key)) keys.push_back(static_cast<KeyPos>(key));
      }
      CHECK(keys == row.keys);
      const auto [n_kept, mass] = reading.outcomes.kept_of(reading.row.row);
      CHECK(n_kept == static_cast<Index>(row.keys.size()));
      CHECK_THAT(mass, WithinAbs(row.mass, 1e-5));
      CHECK_THAT(reading.outcomes.lost, WithinAbs(1.0 - row.mass, 1e-5));
      // Of methods that keep the running chunk, by rule.
      const bool lost_some = static_cast<Index>(keys.size()) < row.visible.size();
      if (lost_some && std::string_view(method) != "oracle-topk")
        CHECK(reading.outcomes.at(row.pos) == KeyUse::by_rule);
      if (std::string_view(method) == "streamingllm") {
        for (const KeyPos key : keys) {
          if (lost_some) CHECK(reading.outcomes.at(key) == KeyUse::by_rule);
        }
      }
    }
  }
}

TEST_CASE("readings of a layer and of all are means over their heads, for any number of threads") {
  const auto trace = planted_trace(plant());
  const TraceInfo& info = trace.info();
  TestJob job;
  TestJob alone(1);
  constexpr Index kQuery = 130;
  for (const LossHeads heads : {LossHeads::layer, LossHeads::all}) {
    LossRequest request = asking("quoka", heads);
    request.dense_layers = heads == LossHeads::all ? 1 : 0;
    const MethodSelections selections = method_selections(trace, nullptr, request, job.context);
    const Reading reading =
        reading_of(trace, {1, 2, kQuery, heads}, &selections, &selections, job.context);
    const Reading same =
        reading_of(trace, {1, 0, kQuery, heads}, &selections, nullptr, alone.context);
    CHECK(same.row.row.probs == reading.row.row.probs);
    std::vector<double> mean(kQuery + 1);
    double lost = 0.0;
    double n = 0.0;
    double n_choosing = 0.0;
    for (const Index layer : info.layers) {
      if (heads == LossHeads::layer && layer != 1) continue;
      for (const Index head : info.q_heads) {
        const AttentionRow row = attention_row(trace, layer, head, kQuery);
        for (Index key = 0; key <= kQuery; ++key) mean[key] += row.prob(key);
        LossRequest one = request;
        one.layer = layer;
        one.q_head = head;
        const auto kept = kept_rows(trace, one, job.context);
        const auto own = std::ranges::find(kept, kQuery, &KeptRow::pos);
        lost += 1.0 - own->mass;
        n_choosing += layer >= request.dense_layers ? 1.0 : 0.0;
        const Reading alike = reading_of(trace, {layer, head, kQuery, LossHeads::head}, &selections,
                                         nullptr, job.context);
        for (Index key = 0; key <= kQuery; ++key)
          CHECK(alike.outcomes.keeps(key) ==
                std::ranges::binary_search(own->keys, static_cast<KeyPos>(key)));
        n += 1.0;
      }
    }
    for (Index key = 0; key <= kQuery; ++key)
      CHECK_THAT(reading.row.row.prob(key), WithinAbs(mean[key] / n, 1e-6));
    CHECK_THAT(reading.outcomes.lost, WithinAbs(lost / n_choosing, 1e-5));
    CHECK(reading.other_outcomes.of == reading.outcomes.of);
    CHECK_THAT(difference_words(reading, "QuoKA", "Quest"),
               ContainsSubstring("only QuoKA 0, only Quest 0"));
    const auto heaviest = heaviest_keys(reading, 3);
    REQUIRE(heaviest.size() == 3);
    CHECK(reading.row.row.prob(heaviest[0]) >= reading.row.row.prob(heaviest[2]));
    CHECK(reading.is_heavy(heaviest[2]));
  }
}

TEST_CASE("a query that a method was not asked about has no outcomes") {
  const auto trace = planted_trace(plant());
  TestJob job;
  MethodSelections none;  // of a layer that stays dense
  none.is_one_head = true;
  none.layers.emplace_back().layer = 1;
  const Reading dense = reading_of(trace, {1, 2, 40, LossHeads::head}, &none, nullptr, job.context);
  CHECK(dense.outcomes.of.empty());
  CHECK(dense.outcomes.at(3) == KeyUse::unknown);
  CHECK(outcome_words(dense.outcomes.at(3)) == "not asked");
  none.layers[0].calls.push_back({{64, 128}, {}});  // a call that does not hold the query
  CHECK_FALSE(none.layers[0].is_dense());
  none.layers[0].calls.clear();  // a sliding window: nothing is left out
  CHECK(none.layers[0].is_dense());
  CHECK(asking("quoka", LossHeads::all).key() != asking("quoka", LossHeads::layer).key());
}

}  // namespace kvscope::gui::test::token_reading_test

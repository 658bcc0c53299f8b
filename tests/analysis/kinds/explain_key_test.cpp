// Why a key was kept or dropped, against loops: weights, lists of a replay, ranks, QuoKA's
// representative queries, Quest's bounds, and the smallest budget by trying them all.
#include "analysis/kinds/explain_key.hpp"

#include "core/sim/replay.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::explain_key_test {

constexpr Index kChunk = 16;
constexpr Index kTokens = 64;

MemoryTrace planted(bool has_sinks = false) {
  test::PlantOptions plant{
      .n_tokens = kTokens, .chunk = kChunk, .sink = 0.5, .band = 0.3, .has_sink_logits = has_sinks};
  return test::planted_trace(plant);
}

KeyQuestion question_of(const std::string& method, Index query, Index budget = 12) {
  return KeyQuestion{.layer = 1,
                     .q_head = 3,
                     .query = query,
                     .selector = method,
                     .budget = Budget{Budget::Kind::tokens, static_cast<double>(budget)},
                     .chunk = kChunk,
                     .dense_layers = 0};
}

QueryLook look(const TraceSource& trace, const KeyQuestion& question) {
  ThreadPool pool(2);
  return look_at_query({trace}, question, pool, {});
}

/// The attended keys of the query, as a replay of the same call measures them.
std::vector<KeyPos> replayed(const TraceSource& trace, const KeyQuestion& question) {
  ReplayOptions options{.calls = {.phase = question.as_step ? Phase::decode : Phase::prefill,
                                  .chunk = question.chunk}};
  if (question.as_step) options.calls.at = {{question.query, question.query + 1}};
  options.rows_per_chunk = std::nullopt;
  options.dense_layers = question.dense_layers;
  std::vector<KeyPos> keys;
  options.on_row = [&](const MeasuredRow& row) {
    if (row.q_head == question.q_head && row.pos == question.query)
      keys.assign(row.kept[0].begin(), row.kept[0].end());
  };
  ThreadPool pool(1);
  replay_layers(trace, nullptr, {question.layer}, {{question.selector, question.budget}}, options,
                pool);
  return keys;
}

bool contains(const std::vector<KeyPos>& keys, Index key) {
  return std::ranges::find(keys, static_cast<KeyPos>(key)) != keys.end();
}

TEST_CASE("explain key: weights are the exact row, with and without sinks") {
  for (const bool has_sinks : {false, true}) {
    const MemoryTrace trace = planted(has_sinks);
    const QueryLook found = look(trace, question_of("quoka", 50));
    const auto row = test::naive_row(trace, 1, 3, 50);
    REQUIRE(found.weights.size() == row.size());
    for (std::size_t i = 0; i < row.size(); ++i) CHECK(found.weights[i] == Approx(row[i]));
    const std::vector<Index> heavy = found.heaviest(5);
    REQUIRE(heavy.size() == 5);
    for (std::size_t i = 0; i < heavy.size(); ++i)
      CHECK(outcome_of(found, heavy[i]).weight_rank == static_cast<Index>(i) + 1);
  }
}

TEST_CASE("explain key: lists are those of a replay, and ranks say who is in them") {
  const MemoryTrace trace = planted();
  for (const char* method :
       {"quoka", "quoka:queries=all,similarity=dot", "quoka+coarsen:query=mean",
        "quest:page-size=4", "streamingllm", "tova", "oracle-topk"}) {
    for (const bool as_step : {false, true}) {
      KeyQuestion question = question_of(method, 45);
      question.as_step = as_step;
      if (!question.selector.caps().is_defined(as_step ? Phase::decode : Phase::prefill)) continue;
      INFO(method << (as_step ? " step" : " chunk"));
      const QueryLook found = look(trace, question);
      const std::vector<KeyPos> expected = replayed(trace, question);
      CHECK(found.kept == expected);
      double mass = 0.0;
      for (const KeyPos key : expected) mass += found.weight(key);
      CHECK(found.kept_mass == Approx(mass));
      std::optional<Index> dropped;
      for (const Index key : found.heaviest(found.weights.size())) {
        if (!dropped && !contains(expected, key)) dropped = key;
      }
      CHECK(heaviest_dropped(found) == dropped);
      for (Index key = 0; key <= 45; ++key) {
        const KeyOutcome outcome = outcome_of(found, key);
        const bool is_kept = contains(expected, key);
        CHECK((outcome.end == KeyEnd::kept || outcome.end == KeyEnd::by_rule) == is_kept);
        if (!outcome.is_ranked || outcome.end == KeyEnd::by_rule) continue;
        CHECK((outcome.rank <= found.n_earned) == is_kept);
        CHECK((outcome.score >= found.cut) == is_kept);
        CHECK(outcome.page.begin <= key);
        CHECK(key < outcome.page.end);
      }
    }
  }
}

TEST_CASE("explain key: the smallest budget is that of trying all of them") {
  const MemoryTrace trace = planted();
  ThreadPool pool(2);
  for (const char* method : {"quoka", "quest:page-size=4", "oracle-topk", "streamingllm"}) {
    KeyQuestion question = question_of(method, 44);
    question.as_step = !question.selector.caps().prefill;
    for (const Index key : {0, 7, 23, 31}) {
      INFO(method << " key " << key);
      Index smallest = 0;
      for (Index budget = 1; budget <= 48 && smallest == 0; ++budget) {
        question.budget = Budget{Budget::Kind::tokens, static_cast<double>(budget)};
        if (contains(replayed(trace, question), key)) smallest = budget;
      }
      question.budget = Budget{Budget::Kind::tokens, 12.0};
      const KeepingBudget found = budget_that_keeps({trace}, question, key, pool, {});
      CHECK(found.is_exact);
      REQUIRE(found.tokens.has_value());
      CHECK(*found.tokens == smallest);
    }
  }
  // A window that moves by rule never comes back to the middle unless it is as large
  // as the context.
  const KeepingBudget by_p = [&] {
    KeyQuestion question = question_of("oracle-topp", 44);
    question.budget = Budget{Budget::Kind::mass, 0.5};
    return budget_that_keeps({trace}, question, 7, pool, {});
  }();
  CHECK_FALSE(by_p.takes_tokens);
  CHECK_FALSE(by_p.tokens.has_value());
}

TEST_CASE("explain key: QuoKA's score is the best product with a representative query") {
  const MemoryTrace trace = planted();
  const KeyQuestion question = question_of("quoka:n-queries=3", 45);
  const QueryLook found = look(trace, question);
  REQUIRE(found.representatives.size() == 3);
  CHECK(found.call == TokenRange{32, 48});
  const auto unit = [](std::span<const float> x) {
    double norm = 0.0;
    for (const float value : x) norm += static_cast<double>(value) * value;
    std::vector<double> out;
    for (const float value : x) out.push_back(value / std::sqrt(norm));
    return out;
  };
  for (Index key = 0; key < 32; ++key) {
    const Tensor<float> k = trace.read_k(1, 1, {key, key + 1});
    const std::vector<double> direction = unit(k.view().row(0));
    double best = -2.0;
    std::size_t best_slot = 0;
    for (std::size_t slot = 0; slot < 3; ++slot) {
      double product = 0.0;
      for (std::size_t h = 0; h < 2; ++h) {
        const Index pos = found.representatives[slot].queries[h];
        const Tensor<float> q = trace.read_q(1, 2 + static_cast<Index>(h), {pos, pos + 1});
        const std::vector<double> query = unit(q.view().row(0));
        for (std::size_t c = 0; c < query.size(); ++c) product += query[c] * direction[c] / 2.0;
      }
      if (product <= best) continue;
      best = product;
      best_slot = slot;
    }
    const KeyOutcome outcome = outcome_of(found, key);
    CHECK(outcome.score == Approx(best).margin(1e-12));
    REQUIRE(outcome.best_query.has_value());
    CHECK(*outcome.best_query == best_slot);
  }
  // The chosen queries are those of lowest cosine with their head's mean.
  CHECK(found.representatives[0].cosines[1] <= found.representatives[1].cosines[1]);
  CHECK(found.representatives[1].cosines[1] <= found.representatives[2].cosines[1]);
}

TEST_CASE("explain key: Quest's bound is never below the page's largest product") {
  const MemoryTrace trace = planted();
  KeyQuestion question = question_of("quest:page-size=4", 45);
  question.as_step = true;
  const QueryLook found = look(trace, question);
  CHECK(found.page_size == 4);
  for (Index key = 0; key <= 45; ++key) {
    const KeyOutcome outcome = outcome_of(found, key);
    if (!outcome.is_ranked) continue;
    CHECK(outcome.page.begin % 4 == 0);
    CHECK(outcome.score * static_cast<double>(trace.info().score_scale) >=
          outcome.page_logit - 1e-9);
  }
}

}  // namespace kvscope::explain_key_test

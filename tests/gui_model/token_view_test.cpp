// The token strip's model: ranks against naive ones, kept keys, table.
#include "gui/model/tokens/token_view.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "analysis/base/read_table.hpp"
#include "tests/gui_model/trace_files.hpp"
#include "tests/support/planted_trace.hpp"

namespace kvscope::gui::test::token_view_test {

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("ranks: the largest weight is first, equal ones by position, others see none") {
  const MemoryTrace trace = kvscope::test::planted_trace({.n_tokens = 40, .zero_keys = {3, 9}});
  const RankedRow ranked = ranked_row(trace, 1, 2, 30);
  const auto naive = kvscope::test::naive_row(trace, 1, 2, 30);
  REQUIRE(naive.size() == ranked.rank.size());
  for (std::size_t i = 0; i < naive.size(); ++i) {
    CHECK(static_cast<double>(ranked.row.probs[i]) == Approx(naive[i]).margin(1e-6));
    Index rank = 1;
    for (std::size_t j = 0; j < naive.size(); ++j) {
      const float a = ranked.row.probs[j];
      const float b = ranked.row.probs[i];
      rank += a > b || (a == b && j < i) ? 1 : 0;
    }
    CHECK(ranked.rank_of(static_cast<Index>(i)) == rank);
  }
  CHECK(ranked.rank_of(9) == ranked.rank_of(3) + 1);  // two zero keys: equal weights
  CHECK(ranked.rank_of(31) == 0);
  CHECK(ranked.rank_of(-1) == 0);
}

/// A document, one of its rows and what a method keeps for it.
struct Shown {
  TempFolder folder;
  Bench bench;
  RankedRow row;
  KeptKeys keys;

  explicit Shown(const Plan& plan = {}, Index query = 20) {
    SyntheticTrace trace = make_trace(plan);
    trace.texts[2] = " a,\"b\"";
    bench.open(write_trace(folder / "a.h5", trace));
    row = ranked_row(bench.document()->source(), 2, 1, query);
    keys = {"quoka", "256 tokens", KeptRow{query, row.row.visible, {0, 2, 5}, 0.0}, false};
    for (const KeyPos key : keys.row->keys) keys.row->mass += row.row.prob(key);
  }
  TokenFigureInput input(WeightScale scale = WeightScale::log, bool mask_sinks = false) {
    const Document& document = *bench.session().document();
    return {document, row, scale, mask_sinks, {keys}};
  }
};

TEST_CASE("the table holds every visible key with its weight, rank and whether it is kept") {
  Shown shown;
  const Table table = table_from_csv(token_csv(shown.input()), "tokens");
  REQUIRE(table.n_rows() == 21);
  for (std::size_t i = 0; i < 21; ++i) {
    const auto pos = static_cast<Index>(i);
    CHECK(table.numbers("position")[i] == static_cast<double>(pos));
    CHECK(table.numbers("weight")[i] == Approx(shown.row.row.prob(pos)).epsilon(1e-7));
    CHECK(table.numbers("rank")[i] == static_cast<double>(shown.row.rank_of(pos)));
    CHECK(table.numbers("kept by QuoKA, 256 tokens")[i] ==
          (i == 0 || i == 2 || i == 5 ? 1.0 : 0.0));
  }
  CHECK(table.text("text").at(2) == " a,\"b\"");
}

TEST_CASE("a query that sees a single key, or only sinks, still makes a figure") {
  for (const Index query : {0, 2}) {
    Shown shown({}, query);
    shown.keys.row->keys = {0};
    for (const auto scale : {WeightScale::log, WeightScale::linear, WeightScale::percentile}) {
      for (const bool mask : {false, true})
        CHECK_NOTHROW(plot::check_figure(token_figure(shown.input(scale, mask))));
    }
  }
}

TEST_CASE("the question of a method names its obstacle, or the files that answer it") {
  const TempFolder folder;
  Bench bench;
  bench.open(write_trace(folder / "a.h5", make_trace({})));
  // The end of the prompt: what is for decoding only has no answer there.
  CHECK_THAT(kept_question(bench.session(), "twilight").obstacle, ContainsSubstring("prefill"));
  bench.session().select("test", [](Selection& s) { s.query = 22; });
  const auto decoding = kept_question(bench.session(), "quest");
  CHECK(decoding.obstacle.empty());
  CHECK(decoding.draft == nullptr);
  CHECK(decoding.key.starts_with(bench.document()->key()));
  CHECK_THAT(kept_question(bench.session(), "specattn").obstacle,
             ContainsSubstring("second trace"));
  bench.open(write_trace(folder / "b.h5", make_trace({}, 2)));
  bench.session().set_second(1);
  const auto with_draft = kept_question(bench.session(), "specattn");
  CHECK(with_draft.obstacle.empty());
  REQUIRE(with_draft.draft);
  CHECK(with_draft.key.find(with_draft.draft->key()) != std::string::npos);
  CHECK(kept_question(bench.session(), "quest").key == decoding.key);
}

}  // namespace kvscope::gui::test::token_view_test

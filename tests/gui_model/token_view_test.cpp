// The token strip's model: ranks and shades against naive ones, kept keys, picture and table.
#include "gui/model/tokens/token_view.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>

#include "analysis/base/read_table.hpp"
#include "gui/model/session/methods.hpp"
#include "tests/gui_model/trace_files.hpp"
#include "tests/support/planted_trace.hpp"

namespace kvscope::gui::test::token_view_test {

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;

/// A row with given weights, of keys begin, begin + 1, ...
RankedRow row_of(std::vector<float> probs, Index begin = 0) {
  AttentionRow row{.visible = {begin, begin + static_cast<Index>(probs.size())}};
  row.query = row.visible.end - 1;
  row.probs = std::move(probs);
  return rank_keys(0, 0, std::move(row));
}

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

TEST_CASE("shades: proportion, four decades, rank") {
  const RankedRow row = row_of({0.8f, 0.08f, 0.008f, 0.0f, 8e-6f});
  const Shading linear(row, WeightScale::linear, /*mask_sinks=*/false);
  CHECK(linear.shade(0) == Approx(1.0));
  CHECK(linear.shade(1) == Approx(0.1));
  CHECK(linear.shade(3) == 0.0);
  CHECK(linear.shade(5) == 0.0);  // not visible
  const Shading log(row, WeightScale::log, false);
  CHECK(log.shade(0) == Approx(1.0));
  CHECK(log.shade(1) == Approx(0.75));
  CHECK(log.shade(2) == Approx(0.5));
  CHECK(log.shade(3) == 0.0);
  CHECK(log.shade(4) == 0.0);  // below four decades
  const Shading rank(row, WeightScale::percentile, false);
  CHECK(rank.shade(0) == Approx(1.0));
  CHECK(rank.shade(1) == Approx(0.75));
  CHECK(rank.shade(3) == Approx(0.0));
  CHECK(Shading().shade(0) == 0.0);
}

TEST_CASE("masked sinks neither are shaded nor set the scale") {
  const RankedRow row = row_of({0.9f, 0.01f, 0.01f, 0.01f, 0.04f, 0.02f});
  const Shading masked(row, WeightScale::linear, /*mask_sinks=*/true);
  CHECK(masked.is_masked(0));
  CHECK(masked.is_masked(3));
  CHECK_FALSE(masked.is_masked(4));
  CHECK(masked.shade(0) == 0.0);
  CHECK(masked.shade(4) == Approx(1.0));
  CHECK(masked.shade(5) == Approx(0.5));
  const RankedRow only_sinks = row_of({0.5f, 0.5f});
  CHECK(Shading(only_sinks, WeightScale::log, true).shade(0) == 0.0);
}

TEST_CASE("the replay that is asked for follows selection and sliders") {
  const TempFolder folder;
  Bench bench;
  bench.open(write_trace(folder / "a.h5", make_trace({})));
  bench.session().select("test", [](Selection& s) {
    s.layer = 2;
    s.q_head = 3;
    s.query = 22;  // decoded
  });
  bench.session().set_parameters("test", [](Parameters& p) { p.budget = 7; });
  const KeptRequest quest = kept_request(bench.session(), "quest", bench.session().parameters());
  CHECK(quest.layer == 2);
  CHECK(quest.q_head == 3);
  CHECK(quest.phase == Phase::decode);
  CHECK(quest.spec == spec_of("quest", bench.session().parameters()));
  REQUIRE(quest.budget);
  CHECK(quest.budget->value == 7.0);
  CHECK_FALSE(quest.rows_per_chunk);
  bench.session().select("test", [](Selection& s) { s.query = 5; });
  CHECK(kept_request(bench.session(), "quest", bench.session().parameters()).phase ==
        Phase::prefill);
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

TEST_CASE("the figure shows the weights, marks what is kept and says what it shows") {
  Shown shown;
  const plot::Figure figure = token_figure(shown.input(WeightScale::linear));
  REQUIRE_NOTHROW(plot::check_figure(figure));
  REQUIRE(figure.panels.size() == 1);
  const auto& line = std::get<plot::Line>(figure.panels[0].marks.at(0));
  REQUIRE(line.x.size() == 21);
  CHECK(line.y[7] == Approx(shown.row.row.prob(7)));
  const auto& points = std::get<plot::Scatter>(figure.panels[0].marks.at(1));
  CHECK(points.x == std::vector<double>{0, 2, 5});
  CHECK(points.y[1] == Approx(shown.row.row.prob(2)));
  CHECK_THAT(figure.caption.at(0), ContainsSubstring("position 20"));
  CHECK_THAT(figure.caption.at(0), ContainsSubstring("layer 2, query head 1"));
  CHECK_THAT(figure.caption.back(), ContainsSubstring("QuoKA keeps 3 of 21 keys"));
  CHECK_THAT(figure.caption.back(), ContainsSubstring("budget 256 tokens"));
}

TEST_CASE("long rows are folded to the largest of neighbours; sinks and logarithms are said") {
  Plan plan;
  plan.n_prompt = 1300;
  plan.n_decode = 0;
  plan.rows = {0, 1300};
  plan.chunk = 650;
  Shown shown(plan, 1299);
  const plot::Figure figure = token_figure(shown.input(WeightScale::log, /*mask_sinks=*/true));
  REQUIRE_NOTHROW(plot::check_figure(figure));
  const auto& line = std::get<plot::Line>(figure.panels[0].marks.at(0));
  CHECK(line.x.size() == 432);  // 1296 keys, three to a point
  double largest = 0.0;
  for (Index pos = 4; pos < 1300; ++pos) largest = std::max(largest, shown.row.row.prob(pos));
  CHECK(*std::max_element(line.y.begin(), line.y.end()) == Approx(largest));
  CHECK(std::find_if(figure.caption.begin(), figure.caption.end(), [](const std::string& s) {
          return s.find("Of each 3 neighbouring keys") != std::string::npos;
        }) != figure.caption.end());
  CHECK_THAT(figure.caption.at(1), ContainsSubstring("first 4 positions (sinks) are left out"));
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

TEST_CASE("from match to match, around the end") {
  const std::vector<std::size_t> found = {3, 7, 20};
  CHECK(next_match(found, 0, true) == 3);
  CHECK(next_match(found, 3, true) == 7);
  CHECK(next_match(found, 20, true) == 3);
  CHECK(next_match(found, 20, false) == 7);
  CHECK(next_match(found, 3, false) == 20);
  CHECK(next_match(found, 100, false) == 20);
  CHECK_FALSE(next_match({}, 1, true));
  CHECK(match_words(found, 7) == "2 of 3");
  CHECK(match_words(found, 8) == "3");
  CHECK(match_words({}, 8) == "0");
}

TEST_CASE("words on what a method keeps") {
  Shown shown;
  CHECK_THAT(kept_words(shown.keys, 20), ContainsSubstring("QuoKA keeps 3 of 21 keys, "));
  CHECK_THAT(kept_words(shown.keys, 18), ContainsSubstring("(of the query at 20)"));
  KeptKeys dense = shown.keys;
  dense.is_dense = true;
  CHECK(kept_words(dense, 20) == "QuoKA leaves this layer dense");
  const KeptKeys empty{"quoka", {}, {}, false};
  CHECK_FALSE(empty.holds(0));
  CHECK_THAT(kept_words(empty, 20), ContainsSubstring("this query was not measured"));
  CHECK(budget_words(std::nullopt).empty());
  CHECK(budget_words(Budget{Budget::Kind::mass, 0.95}) == "p = 0.95");
}

}  // namespace kvscope::gui::test::token_view_test

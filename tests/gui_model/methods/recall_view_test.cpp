// Recall against budget: the curves are those of the command line's sweep; what is of other layers
// or traces is not mixed in.
#include "gui/model/methods/recall_view.hpp"

#include <map>
#include <set>

#include "analysis/base/statistics.hpp"
#include "analysis/figures/sweep_curves.hpp"
#include "analysis/sweep/sweep.hpp"
#include "tests/gui_model/job_context.hpp"
#include "tests/gui_model/methods/kept_rows.hpp"
#include "tests/support/figure_bands.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/run_sweep.hpp"
#include "tests/support/test.hpp"

namespace kvscope::gui::test::recall_view_test {

using kvscope::test::planted_trace;
using kvscope::test::PlantOptions;

constexpr Index kTokens = 160;

PlantOptions plant() {
  return PlantOptions{.n_layers = 3, .n_tokens = kTokens, .sink = 2.0, .band = 1.5, .seed = 7};
}

RecallQuestion question_of(const std::vector<std::string>& ticked, Index budget = 32) {
  RecallQuestion question{.trace = "planted.h5",
                          .layer = 1,
                          .q_head = 2,
                          .layers = {0, 1, 2},
                          .n_tokens = kTokens,
                          .selector = "quoka",
                          .parameters = {.budget = budget, .chunk = 32}};
  question.options.along = RecallAlong::budget;  // what measured axes change has its own tests
  question.options.target = 0.0;
  for (MethodItem& item : method_items(ticked, question.parameters, question.phase, false)) {
    if (item.is_ticked) question.methods.push_back(std::move(item));
  }
  return question;
}

using Rows = std::vector<std::shared_ptr<const MethodRows>>;

Rows compute(const TraceSource& trace, const std::vector<RecallItem>& items) {
  TestJob job;
  Rows rows;
  for (const RecallItem& item : items) {
    rows.push_back(
        std::make_shared<const MethodRows>(method_rows(trace, nullptr, item.request, job.context)));
  }
  return rows;
}

RecallPicture picture_of(const RecallQuestion& question) {
  const MemoryTrace trace = planted_trace(plant());
  const auto items = plan_recall(question);
  return recall_picture(question, items, compute(trace, items));
}

/// The table of `kvscope sweep` with the same options, and other budgets if there are any.
SweepResult sweep_of(const RecallQuestion& question, const std::vector<Budget>& budgets = {}) {
  SweepOptions options;
  for (const MethodItem& method : question.methods) options.selectors.push_back(method.spec);
  for (Index tokens : budget_ladder(question.n_tokens))
    options.budgets.push_back({Budget::Kind::tokens, static_cast<double>(tokens)});
  if (!budgets.empty()) options.budgets = budgets;
  options.replay.calls.phase = question.phase;
  options.replay.calls.chunk = question.parameters.chunk;
  options.replay.rows_per_chunk = 8;
  options.replay.dense_layers = question.parameters.dense_layers;
  SweepTrace trace{.name = "planted.h5",
                   .open = [] { return std::make_unique<MemoryTrace>(planted_trace(plant())); }};
  const SweepPlan plan = plan_sweep({std::move(trace)}, options);
  ThreadPool pool(1);
  Store store;
  return run_sweep(plan, store, pool);
}

Table table_of_sweep(const SweepResult& result) {
  std::vector<const SweepRow*> rows;
  for (const SweepBlock& block : result.blocks) {
    for (const SweepRow& row : block.rows) rows.push_back(&row);
  }
  return table_of(rows, "sweep");
}

const plot::Line& line_of(const RecallPicture& picture, const std::string& method) {
  const auto& marks = picture.figure.panels.at(0).marks;
  for (std::size_t m = 0; m < marks.size(); ++m) {
    const auto* line = std::get_if<plot::Line>(&marks[m]);
    if (line != nullptr && picture.mark_methods.at(m) == method) return *line;
  }
  FAIL("no curve of " << method);
  throw ConfigError("unreachable");
}

TEST_CASE("recall view: curves are those of kvscope figure budget", "[recall_view]") {
  for (const RecallScope scope : {RecallScope::head, RecallScope::layer, RecallScope::all_layers}) {
    for (const auto& [band, metric, name] :
         {std::tuple{BandKind::ci, RecallMetric::mass, "mass"},
          {BandKind::quartiles, RecallMetric::output_error, "output_error"},
          {BandKind::none, RecallMetric::top10_recall, "recall10"},
          {BandKind::none, RecallMetric::topk_recall, "recallk"}}) {
      RecallQuestion question = question_of({"quoka", "quest", "oracle-topk"});
      question.options.scope = scope;
      question.options.metric = metric;
      question.options.band = band;
      const RecallPicture picture = picture_of(question);
      FigureOptions options{.metric = name, .band = band};
      if (scope != RecallScope::all_layers) options.layers = "1";
      if (scope == RecallScope::head) options.heads = "2";
      const plot::Figure expected = figures::sweep_curves(table_of_sweep(sweep_of(question)),
                                                          options, figures::Along::budget, "mass");
      REQUIRE(picture.figure.panels.size() == 1);
      const auto& marks = expected.panels.at(0).marks;
      REQUIRE(picture.figure.panels[0].marks.size() == marks.size());
      for (std::size_t m = 0; m < marks.size(); ++m) {
        // Why one lies beyond the oracle.
        if (std::holds_alternative<plot::Note>(marks[m])) continue;
        const auto& line = std::get<plot::Line>(marks[m]);
        const auto& mine = std::get<plot::Line>(picture.figure.panels[0].marks[m]);
        CHECK(mine.x == line.x);
        CHECK(mine.y == line.y);
        if (band == BandKind::quartiles) {  // intervals are of other random draws
          CHECK(mine.low == line.low);
          CHECK(mine.high == line.high);
        }
        CHECK(mine.tone == line.tone);
      }
      plot::check_figure(picture.figure);
      // of one head in the means of a band, the others are missed
      const std::size_t n_bands = testing::check_bands(picture.figure);
      if (band == BandKind::ci) CHECK(n_bands > 0);
    }
  }
}

TEST_CASE("recall view: the numbers at the budget are what the kept keys hold, by loops",
          "[recall_view]") {
  RecallQuestion question = question_of({"quest", "oracle-topp", "full"}, 20);
  question.options.scope = RecallScope::head;
  const RecallPicture picture = picture_of(question);
  REQUIRE(picture.numbers.size() == 3);
  const MemoryTrace trace = planted_trace(plant());
  TestJob job;
  for (std::size_t m = 0; m < 2; ++m) {
    LossRequest request{.layer = 1,
                        .q_head = 2,
                        .chunk = 32,
                        .spec = question.methods[m].spec,
                        .budget = budget_of(question.methods[m].name, question.parameters),
                        .rows_per_chunk = 8};
    const auto kept = kept_rows(trace, request, job.context);
    double mass = 0.0, n_keys = 0.0;
    for (const KeptRow& row : kept) {
      const auto probs = kvscope::test::naive_row(trace, 1, 2, row.pos);
      for (const KeyPos key : row.keys) mass += probs[key];
      n_keys += static_cast<double>(row.keys.size());
    }
    const auto n_rows = static_cast<double>(kept.size());
    CHECK(n_rows == 5 * 8);
    CHECK(picture.numbers[m].n_heads == 1);
    CHECK(picture.numbers[m].mass == Approx(mass / n_rows));
    CHECK(picture.numbers[m].kept == Approx(n_keys / n_rows));
  }
  CHECK(picture.numbers[0].budget == "20");
  CHECK(picture.numbers[1].budget == "p = 0.95");
  CHECK(picture.numbers[2].budget.empty());
  CHECK(picture.numbers[2].mass == 1.0);
  CHECK(picture.numbers[2].output_error == 0.0);

  // A method that takes a share is one point at the keys that it keeps.
  const plot::Line& point = line_of(picture, "oracle-topp");
  REQUIRE(point.x.size() == 1);
  CHECK(point.x[0] == Approx(picture.numbers[1].kept));
  CHECK(point.y[0] == Approx(picture.numbers[1].mass));
  CHECK_THAT(point.label, ContainsSubstring("0.95"));
  // The budget between two steps is on the curve.
  const plot::Line& curve = line_of(picture, "quest");
  const auto at = std::find(curve.x.begin(), curve.x.end(), 20.0);
  REQUIRE(at != curve.x.end());
  CHECK(curve.y[at - curve.x.begin()] == Approx(picture.numbers[0].mass));
}

TEST_CASE("recall view: what is there of all layers is compared over the same ones",
          "[recall_view]") {
  RecallQuestion question = question_of({"quoka", "quest", "streamingllm"}, 20);
  question.options.scope = RecallScope::all_layers;
  const auto items = plan_recall(question);
  const Rows rows = compute(planted_trace(plant()), items);
  const std::set<Index> all = {0, 1, 2};
  struct Case {
    std::map<std::string, std::set<Index>> known;  // ladders
    std::map<std::string, std::set<Index>> at_budget;
    std::vector<Index> layers;
    std::set<std::string> curves;
    std::string unfinished;
  };
  const Case cases[] = {
      {{{"quoka", {0, 1}}, {"quest", {1}}}, {}, {1}, {"quoka", "quest"}, "1 of 3 layers so far"},
      {{{"quoka", all}, {"quest", {0, 1}}}, {}, {0, 1, 2}, {"quoka"}, "quest lacks 1 of 3 layers"},
      {{{"quoka", all}, {"quest", all}, {"streamingllm", all}},
       {{"quoka", all}, {"quest", {2}}, {"streamingllm", all}},
       {0, 1, 2},
       {"quoka", "quest", "streamingllm"},
       "quest lacks 2 of 3 layers at 20"},
      {{{"quoka", all}, {"quest", all}, {"streamingllm", all}},
       {{"quoka", all}, {"quest", all}, {"streamingllm", all}},
       {0, 1, 2},
       {"quoka", "quest", "streamingllm"},
       ""}};
  for (const Case& one : cases) {
    INFO(one.unfinished);
    Rows some(rows.size());
    for (std::size_t i = 0; i < items.size(); ++i) {
      const auto& known = items[i].is_ladder ? one.known : one.at_budget;
      const auto at = known.find(question.methods[items[i].method].name);
      if (at != known.end() && at->second.contains(items[i].request.layers.at(0)))
        some[i] = rows[i];
    }
    const RecallPicture picture = recall_picture(question, items, some);
    CHECK_THAT(picture.unfinished, ContainsSubstring(one.unfinished));
    CHECK(picture.unfinished.empty() == one.unfinished.empty());
    std::set<std::string> curves(picture.mark_methods.begin(), picture.mark_methods.end());
    CHECK(curves == one.curves);
    for (const std::string& name : curves) {
      const plot::Line& curve = line_of(picture, name);
      for (std::size_t p = 0; p < curve.x.size(); ++p) {  // each point by loops over these layers
        Mean mean;
        for (std::size_t i = 0; i < items.size(); ++i) {
          for (const SweepRow& row : rows[i]->rows) {
            const auto layer = static_cast<Index>(row.number(SweepNumber::layer));
            if (question.methods[items[i].method].name == name &&
                row.number(SweepNumber::budget) == curve.x[p] &&
                !std::isnan(row.number(SweepNumber::q_head)) &&
                std::ranges::count(one.layers, layer) > 0)
              mean.add(row.number(SweepNumber::mass_mean));
          }
        }
        CHECK(mean.n() == 4 * static_cast<int>(one.layers.size()));
        CHECK(curve.y[p] == Approx(mean.value()));
      }
    }
    for (const RecallNumbers& line : picture.numbers) {
      const auto at = one.at_budget.find(line.name);
      CHECK(line.n_heads == (at != one.at_budget.end() && at->second == all ? 12u : 0u));
    }
    const std::string caption = picture.figure.caption[0] + picture.figure.caption[1];
    CHECK_THAT(caption, ContainsSubstring(one.unfinished) &&
                            ContainsSubstring(one.layers.size() > 1 ? "layers 0 to 2" : "layer 1"));
  }
}

TEST_CASE("recall view: along what is measured, points lie where the sweep measured them",
          "[recall_view]") {
  for (const auto& [along, axis] : {std::pair{RecallAlong::keys, figures::Along::keys},
                                    std::pair{RecallAlong::bytes, figures::Along::bytes},
                                    std::pair{RecallAlong::flops, figures::Along::flops}}) {
    RecallQuestion question = question_of({"quoka", "oracle-topk", "oracle-topp", "full"});
    question.options.along = along;
    const RecallPicture picture = picture_of(question);
    plot::check_figure(picture.figure);
    const plot::Figure expected = figures::sweep_curves(
        table_of_sweep(sweep_of(question_of({"quoka", "oracle-topk"}))),
        [] { return FigureOptions{.metric = "mass", .layers = "1"}; }(), axis, "mass");
    const plot::Line& quoka = line_of(picture, "quoka");
    for (const plot::Mark& mark : expected.panels.at(0).marks) {
      const auto* line = std::get_if<plot::Line>(&mark);
      if (line == nullptr || line->label.find("quoka") == std::string::npos) continue;
      CHECK(quoka.x == line->x);
      CHECK(quoka.y == line->y);
    }
  }
}

TEST_CASE("recall view: opened sweeps are curves without markers, named by their file",
          "[recall_view]") {
  RecallQuestion question = question_of({"quoka"});
  question.options.along = RecallAlong::keys;
  const auto items = plan_recall(question);
  const Rows rows = compute(planted_trace(plant()), items);
  const auto table = std::make_shared<const Table>(
      table_of_sweep(sweep_of(question_of({"quoka", "oracle-topk"}))));
  const RecallPicture alone = recall_picture(question, items, rows);
  question.content_hash = "mine";
  const RecallPicture both = recall_picture(question, items, rows, {{"v_1.h5", {"mine"}, table}});
  REQUIRE(both.figure.panels[0].marks.size() == alone.figure.panels[0].marks.size() + 2);
  CHECK(both.mark_methods.size() == both.figure.panels[0].marks.size());
  const auto& opened = std::get<plot::Line>(both.figure.panels[0].marks.back());
  CHECK_FALSE(opened.markers);
  CHECK_THAT(opened.label, ContainsSubstring("h5"));
  CHECK(both.mark_methods.back().empty());
  CHECK(opened.label.find("layer") == std::string::npos);
  CHECK_THAT(both.figure.caption.back(),
             ContainsSubstring("layer 1, all query heads, 40 prefill queries"));
  plot::check_figure(both.figure);
  const auto others = recall_picture(question, items, rows, {{"v_1.h5", {"mine"}, table, 99.0}});
  CHECK_THAT(std::get<plot::Line>(others.figure.panels[0].marks.back()).label,
             ContainsSubstring("chunks of 99"));
  // What is of another trace, or does not say of which, has no place here.
  const std::pair<std::vector<std::string>, const char*> strangers[] = {
      {{"another"}, "another trace than planted.h5"},
      {{}, "does not say of which trace"},
      {{"mine", "another"}, "of 2 traces"}};
  for (const auto& [hashes, why] : strangers) {
    const RecallPicture picture =
        recall_picture(question, items, rows, {{"v_1.h5", hashes, table}});
    CHECK(picture.figure.panels[0].marks.size() == alone.figure.panels[0].marks.size());
    REQUIRE(picture.notes.size() == 1);
    CHECK_THAT(picture.notes[0], ContainsSubstring(why));
  }
  // Means over other layers say over which.
  RecallQuestion wide = question;
  wide.options.scope = RecallScope::all_layers;
  RecallQuestion dense = wide;
  dense.parameters.dense_layers = 1;
  const auto wide_items = plan_recall(wide);
  const RecallPicture apart_layers = recall_picture(
      wide, wide_items, compute(planted_trace(plant()), wide_items),
      {{"v_1.h5", {"mine"}, std::make_shared<const Table>(table_of_sweep(sweep_of(dense)))}});
  CHECK_THAT(std::get<plot::Line>(apart_layers.figure.panels[0].marks.back()).label,
             ContainsSubstring("layers 1 to 2"));
  // Shares of the context have no place on an axis of tokens.
  const auto ratios = std::make_shared<const Table>(table_of_sweep(
      sweep_of(question_of({"quoka"}), {{Budget::Kind::ratio, 0.25}, {Budget::Kind::ratio, 0.5}})));
  question.options.along = RecallAlong::budget;
  const RecallPicture apart = recall_picture(question, items, rows, {{"v_1.h5", {"mine"}, ratios}});
  CHECK(apart.figure.panels[0].marks.size() ==
        recall_picture(question, items, rows).figure.panels[0].marks.size());
  // That is for the window: a paper's caption says what is there.
  REQUIRE(apart.notes.size() == 1);
  CHECK_THAT(apart.notes[0], ContainsSubstring("share of the past keys"));
  CHECK(apart.figure.caption == recall_picture(question, items, rows).figure.caption);
}

}  // namespace kvscope::gui::test::recall_view_test

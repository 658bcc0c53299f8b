// The token strip in the explorer: clicks, hover, search and keys change the session as they must.
#include <GLFW/glfw3.h>
#include <fmt/format.h>

#include "analysis/base/read_table.hpp"
#include "core/trace/memory_trace.hpp"
#include "gui/model/map/attention_row.hpp"
#include "gui/model/tokens/token_text.hpp"
#include "tests/gui/app_rig.hpp"
#include "tests/support/test.hpp"
#include "traces/writer.hpp"

namespace kvscope::gui::test::tokens_panel_test {

constexpr const char* kPanel = "tokens";

std::string token_at(Index pos) {
  return "token " + std::to_string(pos);
}

/// Where a token stands on the screen; fails the test if it is out of sight.
ImVec2 place_of(Rig& rig, Index pos) {
  return rig.mark(token_at(pos), kPanel);
}

bool is_in_sight(Rig& rig, Index pos) {
  return rig.find_mark(token_at(pos), kPanel).has_value();
}

void open_alone(Rig& rig) {
  rig.app().show_panel_alone(kPanel);
  rig.open_pair();
}

std::string hovered(Rig& rig, const std::string& line) {
  const auto state = rig.app().state();
  return state["hover"].contains(line) ? state["hover"][line].get<std::string>() : "-";
}

TEST_CASE("a click makes a token the query, Shift or the right button the key") {
  Rig rig;
  open_alone(rig);
  CHECK(is_in_sight(rig, 191));  // the query
  rig.click(place_of(rig, 120));
  CHECK(rig.session().selection().query == 120);
  rig.click(place_of(rig, 50), /*button=*/1);
  CHECK(rig.session().selection().key == 50);
  CHECK(rig.session().selection().query == 120);
  rig.backend().set_shift(true);
  rig.click(place_of(rig, 60));
  rig.backend().set_shift(false);
  CHECK(rig.session().selection().key == 60);
  CHECK(rig.session().selection().query == 120);
  rig.tap(GLFW_KEY_Z, /*ctrl=*/true);
  CHECK(rig.session().selection().key != 60);
}

TEST_CASE("hovering tells the exact weight, which the copied table holds as well") {
  Rig rig;
  open_alone(rig);
  rig.session().select("test", [](Selection& s) {
    s.layer = 3;
    s.q_head = 5;
    s.query = 150;
  });
  rig.session().set_parameters("test", [](Parameters& p) { p.budget = 16; });
  rig.settle();
  const auto document = rig.session().document();
  const AttentionRow row = attention_row(document->source(), 3, 5, 150);
  const auto csv = rig.app().panel(kPanel).csv();
  REQUIRE(csv);
  const Table table = table_from_csv(*csv, "tokens");
  REQUIRE(table.n_rows() == 151);
  const std::string kept = table.columns().back().name;
  CHECK_THAT(kept, ContainsSubstring("kept by QuoKA"));
  double n_kept = 0.0;
  for (const double k : table.numbers(kept)) n_kept += k;
  CHECK(n_kept >= 16.0);
  CHECK(n_kept < 151.0);
  for (const Index pos : {0, 77, 150}) {
    rig.hover(place_of(rig, pos));
    const auto i = static_cast<std::size_t>(pos);
    CHECK(hovered(rig, "position") == std::to_string(pos));
    CHECK_THAT(hovered(rig, "text"),
               ContainsSubstring(fmt::format("(id {})", document->source().tokens()[i])));
    const double weight = std::stod(hovered(rig, "weight for query 150"));
    CHECK(weight == Approx(row.prob(pos)).epsilon(1e-6));
    CHECK(table.numbers("weight")[i] == weight);
    CHECK(hovered(rig, "quoka") == (table.numbers(kept)[i] > 0.5 ? "kept for it" : "left out"));
  }
  rig.hover(place_of(rig, 170));
  CHECK(hovered(rig, "weight for query 150") == "none: after the query");
}

TEST_CASE("the other method is underlined and tabled only while it is compared") {
  Rig rig;
  open_alone(rig);
  auto options = rig.app().panel(kPanel).options();
  const auto n_columns = [&] {
    return table_from_csv(*rig.app().panel(kPanel).csv(), "tokens").columns().size();
  };
  const std::size_t alone = n_columns();
  options["compare"] = true;
  rig.app().panel(kPanel).set_options(options);
  rig.settle();
  CHECK(n_columns() == alone + 1);
  const auto figure = rig.app().panel(kPanel).figure();
  REQUIRE(figure);
  CHECK_THAT(figure->caption.back(), ContainsSubstring("Quest"));
  options["scale"] = "linear";
  options["mask_sinks"] = true;
  rig.app().panel(kPanel).set_options(options);
  rig.settle();
  CHECK(rig.app().panel(kPanel).options() == options);
  CHECK_THROWS_AS(rig.app().panel(kPanel).set_options({{"scale", "curved"}}), ConfigError);
  CHECK_THROWS_AS(rig.app().panel(kPanel).set_options({{"compare", "yes"}}), ConfigError);
  CHECK(rig.app().panel(kPanel).options() == options);
  for (const Index query : {0, 2}) {  // a single key, only sinks
    rig.session().select("test", [&](Selection& s) { s.query = query; });
    for (const char* scale : {"log", "linear", "percentile"}) {
      for (const bool mask : {false, true}) {
        options["scale"] = scale;
        options["mask_sinks"] = mask;
        rig.app().panel(kPanel).set_options(options);
        rig.settle();
        CHECK_NOTHROW(plot::check_figure(rig.app().panel(kPanel).figure().value()));
      }
    }
  }
}

TEST_CASE("search goes from match to match") {
  Rig rig;
  open_alone(rig);
  const auto document = rig.session().document();
  const auto found = find_text(document->token_bytes(), "the").positions;
  REQUIRE(found.size() > 2);
  rig.session().select("test", [](Selection& s) { s.query = 199; });  // the last token
  rig.backend().move_mouse({2, 2});                                   // anywhere
  rig.tap('F', /*ctrl=*/true);
  rig.frame(2);
  REQUIRE(ImGui::GetIO().WantTextInput);  // the search box has the keyboard
  rig.backend().type("the");
  rig.settle();
  rig.tap(GLFW_KEY_ENTER);
  rig.settle();
  CHECK(rig.session().selection().query == static_cast<Index>(found[0]));  // around the end
  rig.tap(GLFW_KEY_ENTER);
  rig.settle();
  CHECK(rig.session().selection().query == static_cast<Index>(found[1]));
  rig.tap(GLFW_KEY_ENTER, false, /*shift=*/true);
  rig.settle();
  CHECK(rig.session().selection().query == static_cast<Index>(found[0]));
  CHECK(is_in_sight(rig, static_cast<Index>(found[0])));
}

TEST_CASE("losses shade the text, and are what is copied then") {
  Rig rig;
  rig.open(embedded_trace(/*draft=*/false, 1500, 0));
  Panel& panel = rig.app().panel(kPanel);
  for (const char* layout : {"reading", "overview", "atlas", "reading"}) {
    rig.app().show_layout(layout);
    rig.settle();
    CHECK(is_in_sight(rig, 1499));  // the query stays in sight, wherever the text stands
  }
  panel.set_options({{"shade", "losses"}, {"losses_of", "this layer"}});
  rig.session().select("test", [](Selection& s) { s.layer = 5; });
  rig.settle();
  rig.backend().move_mouse(place_of(rig, rig.session().selection().query - 20));
  rig.settle();
  CHECK_THAT(hovered(rig, "lost"), ContainsSubstring("% of its attention"));
  CHECK(hovered(rig, fmt::format("weight for query {}", rig.session().selection().query)) != "-");
  const auto csv = panel.csv();
  REQUIRE(csv);
  CHECK(csv->starts_with("position,id,text,lost\n"));
  CHECK(std::ranges::count(*csv, '\n') == 1501);
  const auto figure = panel.figure();
  REQUIRE(figure);
  CHECK_THAT(figure->caption.front(), ContainsSubstring("this layer"));
  panel.set_options({{"shade", "attention"}, {"losses_of", "this layer"}});
  rig.settle();
  CHECK(panel.csv()->starts_with("position,id,text,weight,rank"));
}

TEST_CASE("the word under the mouse tells what it reads, and arrows walk from word to word") {
  Rig rig;
  open_alone(rig);
  rig.session().select("test", [](Selection& s) { s.query = 100; });
  rig.settle();
  rig.backend().move_mouse(place_of(rig, 150));
  rig.settle();
  CHECK_THAT(hovered(rig, "reads"), ContainsSubstring("%"));
  CHECK_THAT(hovered(rig, "loses"), ContainsSubstring("here"));
  CHECK(rig.session().selection().query == 100);  // a look changes nothing
  auto options = rig.app().panel(kPanel).options();
  options["follow_mouse"] = false;
  rig.app().panel(kPanel).set_options(options);
  rig.settle();
  CHECK(hovered(rig, "reads") == "-");
  rig.tap(GLFW_KEY_RIGHT);
  rig.tap(GLFW_KEY_RIGHT);
  rig.tap(GLFW_KEY_LEFT);
  rig.settle();
  CHECK(rig.session().selection().query == 101);
  rig.tap(GLFW_KEY_DOWN);
  rig.settle();
  const Index below = rig.session().selection().query;
  CHECK(below > 101);
  rig.tap(GLFW_KEY_UP);
  rig.settle();
  CHECK(rig.session().selection().query < below);
  rig.tap(GLFW_KEY_LEFT, /*ctrl=*/false, /*shift=*/true);  // from the query, as no key is selected
  rig.settle();
  CHECK(rig.session().selection().key.has_value());
  // To the first token and not beyond.
  rig.session().select("test", [](Selection& s) { s.query = 0; });
  rig.settle();
  rig.tap(GLFW_KEY_LEFT);
  rig.settle();
  CHECK(rig.session().selection().query == 0);
}

TEST_CASE("a turn of the wheel asks for nothing, a word under the mouse is asked about at once") {
  Rig rig;
  rig.open(embedded_trace(/*draft=*/false, 1500, 0));
  rig.app().show_panel_alone(kPanel);
  rig.settle();
  rig.backend().move_mouse(place_of(rig, rig.session().selection().query - 40));
  rig.frame();
  CHECK(rig.app().is_busy());  // what it reads
  rig.settle();
  CHECK(hovered(rig, "reads") != "-");
  rig.backend().scroll(1.0f);  // the query's reading is shown again, which is known
  rig.frame(2);
  for (int i = 0; i < 3; ++i) {
    rig.backend().scroll(1.0f);
    rig.frame();
    CHECK_FALSE(rig.app().is_busy());
    CHECK_FALSE(rig.app().wants_redraw());
    CHECK(hovered(rig, "position") == "-");
  }
  rig.backend().move_mouse({ImGui::GetIO().MousePos.x + 3.0f, ImGui::GetIO().MousePos.y});
  rig.settle();
  CHECK(hovered(rig, "reads") != "-");
  rig.tap(GLFW_KEY_H);  // by keyboard: the mouse that happens to lie there is out of it
  rig.settle();
  CHECK(hovered(rig, "reads") == "-");
}

TEST_CASE("who reads a word is a list of heads, and a click selects one and its query") {
  Rig rig;
  open_alone(rig);
  rig.session().select("test", [](Selection& s) { s.query = 150, s.key = 40; });
  rig.settle();
  rig.app().panel(kPanel).set_options({{"losses_of", "all layers"}});
  rig.click(rig.mark("who reads it", kPanel));
  rig.settle();
  std::string first;
  const auto marks = rig.app().state()["landmarks"];
  for (const auto& [name, place] : marks.items()) {
    if (first.empty() && name.starts_with("reader ")) first = name;
  }
  rig.click(rig.mark(first));
  rig.settle();
  const Selection& now = rig.session().selection();
  CHECK("reader layer " + std::to_string(now.layer) + " head " + std::to_string(now.q_head) ==
        first);
  CHECK(now.key == 40);
  CHECK(now.query > 40);
}

TEST_CASE("two methods are compared in one text: both losses in the table, one shade") {
  Rig rig;
  open_alone(rig);
  Panel& panel = rig.app().panel(kPanel);
  rig.session().set_parameters("test", [](Parameters& p) { p.budget = 16; });
  for (const char* loss : {"mass", "output", "next token"}) {
    panel.set_options(
        {{"shade", "losses"}, {"losses_of", "this layer"}, {"compare", true}, {"loss", loss}});
    rig.session().select("test", [](Selection& s) { s.other = "streamingllm"; });
    rig.settle();
    INFO(loss);
    const auto csv = panel.csv();
    REQUIRE(csv);
    CHECK(csv->starts_with("position,id,text,lost,"));
    const auto figure = panel.figure();
    REQUIRE(figure);
    CHECK(figure->panels[0].marks.size() == 2);
    rig.backend().move_mouse(place_of(rig, 120));
    rig.settle();
    CHECK_THAT(hovered(rig, "lost"), ContainsSubstring(", the other "));
    CHECK_THAT(hovered(rig, "compared"), ContainsSubstring("both keep"));
  }
}

/// One layer, two query heads, words of a few letters with line breaks: long, and quickly written.
void write_long_trace(const std::filesystem::path& path, Index n_tokens) {
  TraceInfo info = make_trace_info(1, 2, 1, 8, n_tokens, n_tokens);
  info.n_vocab = 1000;
  info.model_config = "{}";
  info.token_text_capacity = 8 * n_tokens;
  std::vector<TokenId> ids;
  std::vector<std::string> texts;
  for (Index i = 0; i < n_tokens; ++i) {
    ids.push_back(static_cast<TokenId>(i % info.n_vocab));
    texts.push_back(i % 97 == 96 ? "\n" : " word" + std::to_string(i % 10));
  }
  const auto wave = [&](Index n_heads, double step) {
    Tensor<float> rows({n_heads, n_tokens, info.d_head});
    double phase = 0.0;
    for (float& x : rows.flat()) x = static_cast<float>(std::sin(phase += step));
    return rows;
  };
  const auto q = wave(2, 0.37);
  const auto k = wave(1, 0.11);
  const Tensor<float> lse({2, n_tokens});
  const auto receiver = create_trace(path, {});
  receiver->begin(info);
  receiver->write(
      {.arrays = {
           {0, "q", q.view()}, {0, "k", k.view()}, {0, "v", k.view()}, {0, "lse", lse.view()}}});
  receiver->write_tokens(ids, texts);
  receiver->commit_call();
  receiver->finish(TraceStatus::complete);
}

TEST_CASE("of a long text only the lines in sight are drawn") {
  const testing::TempDir folder;
  const auto vertices_of = [&](Index n_tokens) {
    const auto path = folder.path() / (std::to_string(n_tokens) + ".h5");
    write_long_trace(path, n_tokens);
    Rig rig;
    // A method without an answer here: no replay of the whole prompt.
    rig.session().select("test", [](Selection& s) { s.selector = "specattn"; });
    rig.app().show_panel_alone(kPanel);
    rig.open(path);
    CHECK(is_in_sight(rig, n_tokens - 1));
    for (int i = 0; i < 50; ++i) {
      rig.backend().scroll(i % 2 == 0 ? 3.0f : -2.0f);
      rig.frame();
    }
    rig.session().select("test", [](Selection& s) { s.query = 500; });
    rig.settle();
    CHECK(is_in_sight(rig, 500));
    return rig.backend().n_vertices();
  };
  const int few = vertices_of(4096);
  const int many = vertices_of(131072);
  CHECK(many < few + few / 4);
}

}  // namespace kvscope::gui::test::tokens_panel_test

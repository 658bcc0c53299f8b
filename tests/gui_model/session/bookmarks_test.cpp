// Bookmarks: kept through a session file; what is no bookmark is left out.
#include "gui/model/session/bookmarks.hpp"

#include <catch2/catch_test_macros.hpp>

#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "tests/gui_model/trace_files.hpp"

namespace kvscope::gui::test::bookmarks_test {

TEST_CASE("bookmarks: they go through JSON, and what is none is left out", "[bookmarks]") {
  const std::vector<Bookmark> marks = {
      {"uuid", "a.h5", 3, 5, 400, Index{20}, "quoka", 256, "a \"sink\"\nlater"},
      {"uuid", "a.h5", 0, 1, 7, std::nullopt, "", 0, ""}};
  CHECK(bookmarks_from_json(to_json(marks)) == marks);
  CHECK(marks[0].words() == "layer 3, head 5, query 400, key 20");
  const auto odd = nlohmann::ordered_json::parse(
      R"([1, {}, {"layer": -1, "q_head": 0, "query": 0}, {"layer": 1, "q_head": 2, "query": 3}])");
  REQUIRE(bookmarks_from_json(odd).size() == 1);
  CHECK(bookmarks_from_json(odd)[0].query == 3);
  CHECK(bookmarks_from_json(nlohmann::ordered_json("no")).empty());
}

TEST_CASE("bookmarks: a session adds, notes, goes back and saves them", "[bookmarks]") {
  const TempFolder folder;
  Bench bench;
  Session& session = bench.session();
  session.add_bookmark("no trace is open");
  CHECK(session.bookmarks().empty());
  bench.open(write_trace(folder / "a.h5", make_trace(Plan{})));
  session.select("test", [](Selection& s) {
    s.layer = 0;
    s.query = 3;
    s.key = 1;
  });
  session.set_parameters("test", [](Parameters& p) { p.budget = 2; });
  session.add_bookmark("first");
  session.set_note(0, "first place");
  const Selection before = session.selection();
  session.select("test", [](Selection& s) {
    s.query = 5;
    s.key.reset();
    s.selector = "streamingllm";
  });
  session.go_to(0);
  CHECK(session.selection() == before);
  session.undo();
  CHECK(session.selection().query == 5);

  const auto json = session.to_json((folder / "a.h5").parent_path());
  Bench other;
  other.session().apply(json, (folder / "a.h5").parent_path());
  other.drain();
  REQUIRE(other.session().bookmarks().size() == 1);
  CHECK(other.session().bookmarks()[0].note == "first place");
  nlohmann::ordered_json odd = json;
  odd["bookmarks"][0]["budget"] = 1'000'000'000'000;  // clamped, as the slider would
  other.session().apply(odd, (folder / "a.h5").parent_path());
  other.session().go_to(0);
  CHECK(other.session().parameters().budget <= other.session().document()->info().n_tokens);
  other.session().close_trace(0);
  other.session().go_to(0);
  REQUIRE_FALSE(other.session().notices().empty());
  CHECK(other.session().notices().back().sentence.find("not open") != std::string::npos);
  other.session().remove_bookmark(0);
  CHECK(other.session().bookmarks().empty());
}

}  // namespace kvscope::gui::test::bookmarks_test

// Story files: what they say, what is refused and how, and sessions whose bookmarks become steps.
#include "notebooks_export/story.hpp"

#include "tests/support/test.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace kvscope::story_test {

Story read(const std::string& text) {
  return story_from_text(text, "s.json", "/a");
}

/// A story of one step, with `fields` in the step.
std::string with_step(const std::string& fields) {
  return R"({"kind": "kvscope-story", "version": 1, "trace": "t.h5", "steps": [{"title": "A", )" +
         fields + "}]}";
}

TEST_CASE("stories: all that a file says is read", "[story]") {
  const Story story = read(R"({"kind": "kvscope-story", "version": 1, "title": "T", "author": "X",
    "trace": "t.h5", "chunk": 64, "dense_layers": 1, "steps": [
    {"title": "A", "note": "n", "panel": ["map", "text"], "layer": 3, "head": 5,
     "queries": [10, 19], "keys": [0, 9], "query": 12, "key": 3, "draft": "/d.h5",
     "methods": [{"method": "quest:page-size=4", "budget": 64},
                 {"method": "quoka", "budget": "ratio=0.1"}],
     "marks": [{"queries": [10, 11], "keys": [2, 3], "label": "box"},
               {"from": [10, 2], "to": [11, 3]}, {"words": [4, 5], "arrow": [1, 1]}]},
    {"title": "B", "panel": "atlas", "trace": "u.h5", "layers": "0,4-5", "heads": "2"},
    {"title": "C", "panel": "figure",
     "figure": {"kind": "budget", "results": ["r.csv"], "options": {"metric": "mass"}}}]})");
  REQUIRE(story.steps.size() == 3);
  CHECK(story.author == "X");
  const StoryStep& a = story.steps[0];
  CHECK(a.view.trace == "/a/t.h5");
  CHECK(a.view.draft == "/d.h5");
  CHECK(a.view.queries == TokenRange{10, 20});
  CHECK(a.view.chunk == 64);
  CHECK(a.view.dense_layers == 1);
  REQUIRE(a.view.methods.size() == 2);
  CHECK(a.view.methods[0].words() == "quest:page-size=4 at tokens=64");
  CHECK(a.view.methods[1].words() == "quoka at ratio=0.1");
  REQUIRE(a.marks.size() == 3);
  CHECK(a.marks[0].keys == TokenRange{2, 4});
  CHECK(a.marks[1].to[1] == 3);
  CHECK(a.marks[2].at == TokenRange{1, 2});
  CHECK(story.steps[1].view.trace == "/a/u.h5");
  CHECK(story.steps[1].view.atlas.layers == std::vector<Index>{0, 4, 5});
  CHECK(story.steps[2].figure->options.metric == "mass");
  CHECK(story.steps[2].figure->results[0] == "/a/r.csv");
}

TEST_CASE("stories: a wrong file is one sentence with the place", "[story]") {
  const auto refused = [](const std::string& text, const std::string& what) {
    CAPTURE(text);
    CHECK_SAYS(read(text), what, "s.json");
  };
  const std::string map = R"("panel": "map", "layer": 0, "head": 0)";
  refused("", "");
  refused("[1]", "");
  refused(R"({"kind": "x"})", "expected \"kind\": \"kvscope-story\"");
  refused(R"({"kind": "kvscope-story", "version": 2, "steps": []})", "a newer kvscope reads it");
  refused(R"({"kind": "kvscope-story", "version": 1, "steps": []})", "at least one step");
  refused(R"({"kind": "kvscope-story", "version": 1})", "steps");
  refused(R"({"kind": "kvscope-story", "version": 1, "stepps": []})", "Did you mean steps?");
  refused(with_step(R"("panel": "maps")"), "steps[0].panel");
  refused(with_step(R"("panel": ["map", "map"])"), "each panel once");
  refused(with_step(R"("panel": "map", "layer": 0)"), "steps[0].head");
  refused(with_step(R"("panel": ["map", "atlas"], "layer": 0, "head": 0)"), "steps[0].panel");
  refused(with_step(map + R"(, "querys": [1, 2])"), "there is no such field");
  refused(with_step(map + R"(, "queries": [9, 3])"), "first and the last position");
  refused(with_step(map + R"(, "queries": [-1, 3])"), "steps[0].queries");
  refused(with_step(map + R"(, "queries": [0, 1e30])"), "steps[0].queries");
  refused(with_step(map + R"(, "key": 3)"), "needs its \"query\"");
  refused(with_step(map + R"(, "methods": [{"method": "qest", "budget": 3}])"),
          "steps[0].methods[0].method");
  refused(with_step(map + R"(, "methods": [{"method": "quest"}])"), "quest needs one");
  refused(with_step(map + R"(, "methods": [{"method": "quest", "budget": -3}])"), "budget");
  refused(with_step(map + R"(, "marks": [{"label": "x"}])"), "steps[0].marks[0]");
  refused(with_step(map + R"(, "marks": [{"from": [1, 2]}])"), "steps[0].marks[0].to");
  refused(with_step(map + R"(, "figure": {"kind": "budget", "results": ["r"]})"), "go together");
  refused(with_step(R"("panel": "figure", "figure": {"kind": "bugdet", "results": ["r"]})"),
          "steps[0].figure.kind");
  refused(with_step(R"("panel": "figure", "figure": {"kind": "budget", "results": []})"),
          "a list of files");
  refused(with_step(map + fmt::format(R"(, "note": "{}")", std::string(9000, 'x'))),
          "at most 8000 bytes, found 9000");
  std::string marks;
  for (int i = 0; i < 51; ++i) marks += R"({"words": [1, 2]},)";
  marks.pop_back();
  refused(with_step(map + ", \"marks\": [" + marks + "]"), "at most 50 entries, found 51");
}

TEST_CASE("stories: a file cut anywhere is refused, never read in part", "[story]") {
  const std::string whole =
      with_step(R"("panel": "map", "layer": 0, "head": 0, "marks": [{"words": [1, 2]}])");
  REQUIRE(read(whole).steps.size() == 1);
  for (std::size_t n = 0; n < whole.size(); ++n)
    CHECK_THROWS_AS(read(whole.substr(0, n)), FormatError);
}

TEST_CASE("stories: the bookmarks of a session become steps", "[story]") {
  const std::string session = R"({"kind": "kvscope-session", "version": 1,
    "traces": [{"uuid": "u1", "path": "t.h5"}], "parameters": {"chunk": 32, "page_size": 8},
    "bookmarks": [{"trace": "u1", "name": "t.h5", "layer": 2, "q_head": 1, "query": 40, "key": 7,
                   "selector": "quest", "budget": 48, "note": "look\nhere"},
                  {"trace": "u1", "name": "t.h5", "layer": 0, "q_head": 0, "query": 5, "key": null,
                   "selector": "", "budget": 0, "note": ""}]})";
  const Story story = read(session);
  REQUIRE(story.steps.size() == 2);
  const StoryStep& first = story.steps[0];
  CHECK(first.title == "look");
  CHECK(first.note == "look\nhere");
  CHECK(first.view.trace == "/a/t.h5");
  CHECK(first.view.chunk == 32);
  REQUIRE(first.view.methods.size() == 1);
  CHECK(first.view.methods[0].words() == "quest:page-size=8 at tokens=48");
  CHECK(first.marks.size() == 2);
  CHECK(story.steps[1].title == "Layer 0, head 0, query 5");
  CHECK(story.steps[1].view.methods.empty());

  auto json = nlohmann::json::parse(session);
  json["traces"] = nlohmann::json::array();
  CHECK_SAYS(read(json.dump()), "bookmarks[0].trace (s.json)", "not among the session's traces");
  json["bookmarks"] = nlohmann::json::array();
  CHECK_SAYS(read(json.dump()), "has no bookmarks");
}

TEST_CASE("stories: notes become marks that are meant, and words", "[story]") {
  CHECK(note_html("a **b** `c` [d](https://e)\n\nf") ==
        "<p>a <b>b</b> <code>c</code> <a rel=\"noopener noreferrer\" "
        "href=\"https://e\">d</a></p>\n<p>f</p>\n");
  CHECK(note_html("2 ** 3 < 9, [x](ftp://y)") == "<p>2 ** 3 &lt; 9, [x](ftp://y)</p>\n");
  CHECK(note_words("a **b**\n\n[c](https://d)  e") == "a b c e");
}

}  // namespace kvscope::story_test

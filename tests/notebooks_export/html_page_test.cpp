// HTML pages: what they hold are the analyses' numbers, sessions become steps, text stays text.
#include "notebooks_export/html_page.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "analysis/kinds/explain_key.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::html_page_test {

using Json = nlohmann::json;

/// The text of the element with this id.
std::string element(const std::string& html, const std::string& id) {
  const std::size_t at = html.find("id=\"" + id + "\"");
  REQUIRE(at != std::string::npos);
  const std::size_t begin = html.find('>', at) + 1;
  return html.substr(begin, html.find('<', begin) - begin);
}

std::vector<unsigned> bytes_of(const std::string& html, const std::string& id) {
  static const std::string kSigns =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<unsigned> bytes;
  unsigned group = 0;
  int n_bits = 0;
  for (const char sign : element(html, id)) {
    group = (group << 6 | static_cast<unsigned>(kSigns.find(sign))) & 0xffffU;
    n_bits += 6;
    if (n_bits < 8) continue;
    n_bits -= 8;
    bytes.push_back(group >> n_bits & 0xffU);
  }
  return bytes;
}

TraceOpener opener(const TraceSource& trace) {
  return [&](const std::filesystem::path&) {
    return std::shared_ptr<const TraceSource>(&trace, [](const TraceSource*) {});
  };
}

HtmlPage page_of(const PageContent& content, const HtmlPageOptions& options = {}) {
  ThreadPool pool(2);
  return make_html_page(content, options, pool, {}, {});
}

/// The planted trace with texts and a window in layer 1.
MemoryTrace windowed_trace(bool has_sink_logits = false) {
  test::PlantOptions plant{.n_tokens = 53, .sink = 1.0, .has_sink_logits = has_sink_logits};
  MemoryTrace trace = test::planted_trace(plant, [](TraceInfo& info) { info.window[1] = 20; });
  trace.set_tokens(std::vector<TokenId>(53, 1));
  return trace;
}

/// Two bookmarks of a head under two methods, and one without a method in the layer with a window.
Json session() {
  return Json::parse(R"({"kind": "kvscope-session", "version": 1,
    "traces": [{"uuid": "u0", "path": "other.h5"}, {"uuid": "u1", "path": "sub/t.h5"}],
    "parameters": {"chunk": 16, "page_size": 4, "nucleus": 0.9, "dense_layers": 0}, "results": [],
    "bookmarks": [
      {"trace": "u1", "name": "t.h5", "layer": 0, "q_head": 2, "query": 40, "key": 7,
       "selector": "quest", "budget": 8, "note": "look\nhere"},
      {"trace": "u1", "name": "t.h5", "layer": 0, "q_head": 2, "query": 5, "key": null,
       "selector": "streamingllm", "budget": 8, "note": ""},
      {"trace": "", "name": "t.h5", "layer": 1, "q_head": 0, "query": 9, "key": null,
       "selector": "", "budget": 0, "note": ""}]})");
}

/// The session read from a file of its own.
PageContent read(const std::string& text, const TraceSource& trace) {
  const testing::TempDir folder;
  const auto file = folder.write("s.json", text);
  return page_of_session(file, opener(trace));
}

TEST_CASE("html page: bookmarks become steps, with the session's sliders", "[html_page]") {
  const MemoryTrace trace = windowed_trace();
  PageContent content = read(session().dump(), trace);
  REQUIRE(content.steps.size() == 3);
  REQUIRE(content.heads.size() == 2);
  REQUIRE(content.heads[0].methods.size() == 2);
  CHECK(content.heads[0].methods[0].words() == "quest:page-size=4 at tokens=8");
  CHECK(content.replay.chunk == 16);
  CHECK(content.steps[0].title == "look\nhere");
  CHECK(content.steps[0].note == "Layer 0, head 2, query 40, key 7.");
  CHECK(content.steps[1].title == "Layer 0, head 2, query 5.");
  CHECK(content.steps[1].method == 1);
  CHECK_FALSE(content.steps[2].method);
  CHECK(content.traces[0].path.parent_path().filename() == "sub");

  Json view = {{"format", "kvscope-view"}, {"session", session()}};
  view["session"]["bookmarks"][2]["selector"] = "quest";
  view["session"]["bookmarks"][1]["selector"] = "specattn";
  content = read(view.dump(), trace);
  const HtmlPage page = page_of(content);
  REQUIRE(page.notes.size() == 2);
  CHECK_HAS(page.notes[0], "specattn needs a draft model's trace");
  CHECK_HAS(page.notes[1], "leaves layer 1 dense: it sees the last 20 keys");
  for (const unsigned kept : bytes_of(page.html, "kept-1-0")) CHECK(kept == 0);
}

TEST_CASE("html page: a wrong session is one sentence with the place", "[html_page]") {
  const MemoryTrace trace = windowed_trace();
  struct Wrong {
    const char* place;
    Json value;
    const char* words;
  };
  const std::vector<Wrong> wrong = {
      {"/kind", "kvscope-story", "expected a session"},
      {"/traces", Json::array(), "not among the session's traces"},
      {"/traces", 3, "traces"},
      {"/bookmarks", Json::array(), "neither bookmarks nor results"},
      {"/bookmarks", Json(101, Json::object()), "at most 100 entries"},
      {"/bookmarks/0", 7, "bookmarks[0]"},
      {"/bookmarks/0/trace", "u9", "bookmarks[0].trace"},
      {"/bookmarks/0/layer", 7, "one that its trace holds, 0, 1"},
      {"/bookmarks/0/layer", -1, "bookmarks[0].layer"},
      {"/bookmarks/0/q_head", 1e30, "bookmarks[0].q_head"},
      {"/bookmarks/0/query", 53, "bookmarks[0].query"},
      {"/bookmarks/1/key", "x", "bookmarks[1].key"},
      {"/bookmarks/0/selector", "qest", "bookmarks[0].selector"},
      {"/bookmarks/0/budget", -3, "bookmarks[0].budget"},
      {"/bookmarks/0/note", 4, "bookmarks[0].note"},
      {"/parameters/chunk", 0, "chunk"},
      {"/parameters", Json::array(), "parameters"},
      {"/results", Json::array({7}), "results[0]"}};
  for (const Wrong& one : wrong) {
    Json json = session();
    json[Json::json_pointer(one.place)] = one.value;
    CAPTURE(one.place);
    CHECK_SAYS(read(json.dump(), trace), one.words, "s.json");
  }
  Json many = session();
  for (int i = 0; i < 9; ++i) {
    many["bookmarks"].push_back(many["bookmarks"][0]);
    many["bookmarks"].back()["budget"] = i + 9;
  }
  CHECK_SAYS(read(many.dump(), trace), "at most 8 methods in the bookmarks of one head");
  const std::string whole = session().dump();
  for (std::size_t n = 0; n < whole.size(); n += 3)
    CHECK_THROWS_AS(read(whole.substr(0, n), trace), FormatError);
}

TEST_CASE("html page: text stays text, and no folder of the machine is told", "[html_page]") {
  MemoryTrace planted = test::planted_trace(test::PlantOptions{.n_tokens = 16});
  TraceInfo info = planted.info();
  info.model_name = "<img src=x onerror=alert(1)>";
  MemoryTrace trace(info);
  std::vector<std::string> texts(16, "</pre><script>alert(1)</script>");
  texts[3] = "\xff\"\\ \n";
  trace.set_tokens(std::vector<TokenId>(16, 7), texts);
  Json json = session();
  json["bookmarks"].erase(2);
  json["bookmarks"].erase(1);
  json["bookmarks"][0]["query"] = 9;
  json["bookmarks"][0]["note"] = "</h2><img src=x> **b** [a](javascript:alert(1))";
  const testing::TempDir folder;
  folder.write("rows.csv", "selector,budget,mass_mean\n<img>,8,0.5\n");
  json["results"] = {"rows.csv"};
  const auto file = folder.write("s.json", json.dump());
  const HtmlPage page = page_of(page_of_session(file, opener(trace)));
  const HtmlPage atlas = page_of(atlas_of_trace(folder.path() / "a&b.h5", {}, opener(trace)));
  for (const std::string& html : {page.html, atlas.html}) {
    CHECK(html.find("<img src=x") == std::string::npos);
    CHECK(html.find("alert(1)</script>") == std::string::npos);
    CHECK(html.find("href=\"javascript") == std::string::npos);
    CHECK(html.find(folder.path().string()) == std::string::npos);
    CHECK_HAS(html, "default-src 'none'");
    CHECK_HAS(element(html, "page-data"), "&lt;script&gt;");
  }
  CHECK_HAS(page.html, "&lt;/h2&gt;&lt;img src=x&gt; **b** [a](javascript:alert(1))");
  CHECK_HAS(atlas.html, "Trace a&amp;b.h5 (");
  REQUIRE(page.notes.size() == 1);
  CHECK_HAS(page.notes[0], "rows.csv: no figure budget:", "there is no column");
}

TEST_CASE("html page: maps get coarser until the page fits, or it is refused", "[html_page]") {
  const MemoryTrace trace = test::planted_trace(test::PlantOptions{.n_tokens = 1200, .chunk = 600});
  HtmlPageOptions options{.max_size = 1.0};
  const PageContent atlas = atlas_of_trace("t.h5", {}, opener(trace));
  const HtmlPage page = page_of(atlas, options);
  CHECK(page.block > 1);
  CHECK(page.html.size() < 1.0e6);
  CHECK(page.html.size() > 0.5e6);
  options.max_cells = 1200;
  CHECK_SAYS(page_of(atlas, options), "expected at most 1 (--max-size)");
}

}  // namespace kvscope::html_page_test

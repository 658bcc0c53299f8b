// What is open and selected: opening in order, closing, undo, files that change, sessions as JSON.
#include "gui/model/session/session.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "tests/gui_model/trace_files.hpp"

namespace kvscope::gui::test::session_test {

using Catch::Matchers::ContainsSubstring;

SyntheticTrace named(const std::string& name, std::uint64_t seed = 1) {
  SyntheticTrace trace = make_trace({}, seed);
  trace.info.model_name = name;
  return trace;
}

std::vector<std::string> names(const Session& session) {
  std::vector<std::string> names;
  for (const auto& document : session.documents()) names.push_back(document->info().model_name);
  return names;
}

struct Files {
  TempFolder folder;
  std::filesystem::path a = write_trace(folder / "a.h5", named("a"));
  std::filesystem::path b = write_trace(folder / "b.h5", named("b"));
  std::filesystem::path c = write_trace(folder / "c.h5", named("c", 7));
};

void select_layer(Session& session, Index layer, const char* origin = "test") {
  session.select(origin, [&](Selection& s) { s.layer = layer; });
}

TEST_CASE("problems become notices, each once, and nothing else changes") {
  Files files;
  Bench bench;
  spill(files.folder / "bad.h5", "no trace");
  bench.session().open(files.folder / "none.h5");
  bench.session().open(files.folder / "bad.h5");
  bench.session().open(files.a);
  bench.session().open(files.folder / ".");
  bench.drain();
  REQUIRE(bench.session().notices().size() == 3);
  CHECK_THAT(bench.session().notices()[0].sentence, ContainsSubstring("no such file"));
  CHECK_THAT(bench.session().notices()[1].sentence, ContainsSubstring("bad.h5"));
  CHECK_THAT(bench.session().notices()[2].sentence, ContainsSubstring("is a folder"));
  CHECK(names(bench.session()) == std::vector<std::string>{"a"});
  bench.open(files.folder / "none.h5");
  CHECK(bench.session().notices().size() == 3);
  bench.session().dismiss(1);
  bench.session().dismiss(77);
  CHECK(bench.session().notices().size() == 2);
}

// ---- files that change ----

TEST_CASE("a replaced file is read again in its place, the selection kept as far as it goes") {
  Files files;
  Bench bench;
  bench.session().open(files.a);
  bench.session().open(files.c);
  bench.drain();
  Session& session = bench.session();
  select_layer(session, 2);
  const auto old = session.document();
  Plan fewer;
  fewer.layers = {0, 1};
  SyntheticTrace other = make_trace(fewer, 3);
  other.info.model_name = "new";
  write_trace(files.a, other);
  session.watch_files();
  REQUIRE(session.notices().size() == 1);
  session.reload(session.notices()[0].reload);
  bench.drain();
  CHECK(names(session) == std::vector<std::string>{"new", "c"});
  CHECK(session.selection().layer == 1);
  CHECK(session.notices().empty());
  CHECK(old->source().read_k(2, 0, {0, 4}).dim(0) == 4);  // whoever still holds it may read
  session.watch_files();
  CHECK_FALSE(session.is_opening());
}

// ---- sessions as JSON ----

Json saved(Bench& bench, const Files& files) {
  return bench.session().to_json(files.folder / "");
}

TEST_CASE("a session given before its trace waits for it") {
  Files files;
  Bench bench;
  Json json = saved(bench, files);
  json["selection"]["layer"] = 1;
  json["selection"]["query"] = 7;
  bench.session().apply(json, files.folder / "");  // names no files
  bench.open(files.a);
  CHECK(bench.session().selection().layer == 1);
  CHECK(bench.session().selection().query == 7);
}

TEST_CASE("what is no session is refused with a sentence, and changes nothing") {
  Files files;
  Bench bench;
  bench.open(files.a);
  const Json before = saved(bench, files);
  const auto refuse = [&](const std::function<void(Json&)>& spoil, const char* words) {
    Json json = before;
    spoil(json);
    INFO(words);
    try {
      bench.session().apply(json, files.folder / "");
      FAIL_CHECK("it was accepted");
    } catch (const ConfigError& e) {
      CHECK_THAT(std::string(e.what()), ContainsSubstring(words));
    }
    CHECK(saved(bench, files) == before);
  };
  refuse([](Json& json) { json = Json::array(); }, "kvscope-session");
  refuse([](Json& json) { json["kind"] = "other"; }, "kvscope-session");
  refuse([](Json& json) { json["version"] = 99; }, "newer");
  refuse([](Json& json) { json["selection"]["selector"] = "magic"; }, "magic");
  refuse([](Json& json) { json["parameters"]["budget"] = "many"; }, "budget");
  refuse([](Json& json) { json["parameters"]["budget"] = -1; }, "budget");
  refuse([](Json& json) { json["parameters"] = 3; }, "object");
  refuse([](Json& json) { json["ticked"] = {"quest", "magic"}; }, "magic");
}

}  // namespace kvscope::gui::test::session_test

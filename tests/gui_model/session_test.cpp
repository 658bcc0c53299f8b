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

TEST_CASE("files appear in the order in which they were asked for") {
  Files files;
  for (int round = 0; round < 10; ++round) {
    Bench bench;
    for (const auto& path : {files.c, files.a, files.b}) bench.session().open(path);
    CHECK(bench.session().is_opening());
    bench.drain();
    CHECK(names(bench.session()) == std::vector<std::string>{"c", "a", "b"});
    CHECK(bench.session().selection().trace == 0);
    CHECK(bench.session().selection().query == 20);  // the end of the prompt
  }
}

TEST_CASE("one file is open once, however often it is asked for") {
  Files files;
  Bench bench;
  bench.session().open(files.a);
  bench.session().open(files.a);
  bench.session().open(files.b);
  bench.drain();
  CHECK(names(bench.session()) == std::vector<std::string>{"a", "b"});
  bench.open(files.folder / "." / "b.h5");  // another spelling
  CHECK(bench.session().documents().size() == 2);
  CHECK(bench.session().selection().trace == 1);  // shown again
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

TEST_CASE("an opening that was cancelled ends, and does not hold up others") {
  Files files;
  Bench bench;
  bench.session().open(files.a);
  bench.session().open(files.b);
  for (const Job& job : bench.jobs.active()) job.cancel();
  bench.session().open(files.c);
  REQUIRE(bench.jobs.drain(30.0));
  bench.session().watch_files();  // as the app does every second
  CHECK_FALSE(bench.session().is_opening());
  CHECK(names(bench.session()) == std::vector<std::string>{"c"});
  bench.open(files.a);
  CHECK(names(bench.session()) == std::vector<std::string>{"c", "a"});
}

TEST_CASE("the same prompt makes the later trace the second one; closing moves both along") {
  Files files;
  Bench bench;
  for (const auto& path : {files.c, files.a, files.b}) bench.session().open(path);
  bench.drain();
  Session& session = bench.session();
  CHECK_FALSE(session.second());  // other prompts than that of c
  session.select("test", [](Selection& s) { s.trace = 1; });
  session.set_second(2);
  CHECK(session.second()->info().model_name == "b");
  session.close_trace(0);
  CHECK(session.document()->info().model_name == "a");
  CHECK(session.second()->info().model_name == "b");
  session.close_trace(0);
  CHECK(session.document()->info().model_name == "b");
  CHECK_FALSE(session.second());
  session.close_trace(5);
  session.close_trace(-1);
  session.close_trace(0);
  CHECK(session.document() == nullptr);
  session.undo();
  select_layer(session, 2);

  Bench other;
  other.session().open(files.a);
  other.session().open(files.b);
  other.drain();
  REQUIRE(other.session().second());
  CHECK(other.session().second()->info().model_name == "b");
  other.session().set_second(99);
  CHECK_FALSE(other.session().second());
}

TEST_CASE("selections are clamped, undone and redone; a slider's drag is one step") {
  Files files;
  Bench bench;
  bench.open(files.a);
  Session& session = bench.session();
  CHECK_FALSE(session.can_undo());
  select_layer(session, 99, "one");
  CHECK(session.selection().layer == 2);
  select_layer(session, 2, "nothing new");
  select_layer(session, 1, "two");
  for (Index budget = 10; budget < 20; ++budget)
    session.set_parameters("slider", [&](Parameters& p) { p.budget = budget; });
  CHECK(session.parameters().budget == 19);
  session.undo();
  CHECK(session.parameters().budget == 256);
  CHECK(session.selection().layer == 1);
  session.undo();
  CHECK(session.selection().layer == 2);
  session.undo();
  CHECK(session.selection().layer == 0);
  CHECK_FALSE(session.can_undo());
  session.undo();
  session.redo();
  session.redo();
  session.redo();
  CHECK(session.parameters().budget == 19);
  CHECK_FALSE(session.can_redo());
}

TEST_CASE("steps stay inside what was recorded") {
  const TempFolder folder;
  Plan plan;
  plan.layers = {0, 2};
  plan.q_heads = {2, 3};
  plan.kv_heads = {1};
  plan.rows = {5, 24};
  Bench bench;
  bench.open(write_trace(folder / "a.h5", make_trace(plan)));
  Session& session = bench.session();
  CHECK(session.selection().q_head == 2);
  session.step_layer(1);
  CHECK(session.selection().layer == 2);
  session.step_layer(1);
  CHECK(session.selection().layer == 2);
  session.step_layer(-5);
  CHECK(session.selection().layer == 0);
  session.step_head(1);
  CHECK(session.selection().q_head == 3);
  CHECK(session.kv_head() == 1);
  session.step_query(-100);
  CHECK(session.selection().query == 5);
  session.step_query(1000);
  CHECK(session.selection().query == 23);
  CHECK(session.phase() == Phase::decode);
  CHECK(session.call() == TokenRange{23, 24});
  session.set_parameters("test", [](Parameters& p) { p.chunk = 8; });
  session.select("test", [](Selection& s) { s.query = 18; });
  CHECK(session.call() == TokenRange{16, 21});  // the last chunk ends with the prompt
}

TEST_CASE("sliders stay inside their ranges") {
  Bench bench;
  bench.session().set_parameters("test", [](Parameters& p) {
    p.budget = -4;
    p.nucleus = 7.0;
    p.page_size = 1 << 30;
  });
  CHECK(bench.session().parameters().budget == 1);
  CHECK(bench.session().parameters().nucleus == 1.0);
  CHECK(bench.session().parameters().page_size == 1024);
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

TEST_CASE("a file that was replaced by nonsense is said once; what was open stays") {
  Files files;
  Bench bench;
  bench.open(files.a);
  std::filesystem::remove(files.a);
  spill(files.a, "nonsense");
  Session& session = bench.session();
  session.watch_files();
  REQUIRE(session.notices().size() == 1);
  session.reload(session.notices()[0].reload);
  bench.drain();
  REQUIRE(session.notices().size() == 1);
  CHECK_THAT(session.notices()[0].sentence, ContainsSubstring("not a whole HDF5 file"));
  CHECK(names(session) == std::vector<std::string>{"a"});
  session.dismiss(0);
  session.watch_files();
  CHECK_FALSE(session.is_opening());  // this state of the file was tried
  bench.drain();
  CHECK(session.notices().empty());
  std::filesystem::remove(files.a);
  write_trace(files.a, named("again"));
  session.watch_files();
  REQUIRE(session.notices().size() == 1);
  session.reload(files.a);
  bench.drain();
  CHECK(names(session) == std::vector<std::string>{"again"});
}

TEST_CASE("a deleted file is said once, and its return noticed") {
  Files files;
  Bench bench;
  bench.open(files.a);
  Session& session = bench.session();
  std::filesystem::rename(files.a, files.folder / "moved.h5");
  session.watch_files();
  session.watch_files();
  REQUIRE(session.notices().size() == 1);
  CHECK_THAT(session.notices()[0].sentence, ContainsSubstring("deleted or moved"));
  CHECK(session.document()->source().read_k(0, 0, {0, 24}).dim(0) == 24);
  write_trace(files.a, named("returned"));
  session.watch_files();
  REQUIRE(session.notices().size() == 2);
  CHECK(session.notices()[1].reload == files.a);
  session.reload(files.a);
  bench.drain();
  CHECK(names(session) == std::vector<std::string>{"returned"});
}

TEST_CASE("a file that is closed while it is read again stays closed") {
  Files files;
  Bench bench;
  bench.open(files.a);
  write_trace(files.a, named("new"));
  bench.session().watch_files();
  bench.session().reload(files.a);
  bench.session().close_trace(0);
  bench.drain();
  CHECK(bench.session().documents().empty());
}

// ---- sessions as JSON ----

Json saved(Bench& bench, const Files& files) {
  return bench.session().to_json(files.folder / "");
}

TEST_CASE("a session comes back as it was saved") {
  Files files;
  Json json;
  {
    Bench bench;
    bench.session().open(files.c);
    bench.session().open(files.a);
    bench.session().open(files.b);
    bench.drain();
    bench.session().select("test", [](Selection& s) {
      s.trace = 1;
      s.layer = 2;
      s.q_head = 3;
      s.query = 17;
      s.key = 4;
      s.selector = "streamingllm";
      s.other = "oracle-topk";
    });
    bench.session().set_second(2);
    bench.session().set_parameters("test", [](Parameters& p) { p.budget = 33; });
    bench.session().set_ticked("quest", false);
    json = saved(bench, files);
    CHECK(json["traces"][0]["path"] == "c.h5");  // relative to where it is saved
  }
  Bench bench;
  bench.session().apply(json, files.folder / "");
  bench.drain();
  CHECK(bench.session().notices().empty());
  CHECK(names(bench.session()) == std::vector<std::string>{"c", "a", "b"});
  CHECK(saved(bench, files) == json);
}

TEST_CASE("a session without a second trace comes back without one") {
  Files files;
  Json json;
  {
    Bench bench;
    bench.session().open(files.a);
    bench.session().open(files.b);
    bench.drain();
    bench.session().set_second(std::nullopt);
    json = saved(bench, files);
  }
  Bench bench;
  bench.session().apply(json, files.folder / "");
  bench.drain();
  CHECK_FALSE(bench.session().second());
  CHECK(saved(bench, files) == json);
}

TEST_CASE("a session is applied to another trace as far as that has what it names") {
  Files files;
  Bench bench;
  bench.open(files.a);
  bench.session().select("test", [](Selection& s) {
    s.layer = 2;
    s.query = 23;
    s.key = 20;
    s.selector = "recent";
  });
  const Json json = saved(bench, files);
  Plan small;
  small.n_prompt = 10;
  small.n_decode = 0;
  small.rows = {0, 10};
  small.layers = {0, 1};
  Bench other;
  other.open(write_trace(files.folder / "small.h5", make_trace(small, 4)));
  other.session().apply(json, files.folder / "");
  other.drain();
  CHECK(other.session().documents().size() == 1);
  CHECK(other.session().selection().layer == 1);
  CHECK(other.session().selection().query == 9);
  CHECK_FALSE(other.session().selection().key);  // it would lie after the query
  CHECK(other.session().selection().selector == "recent");
  other.session().undo();
  CHECK(other.session().selection().selector == "quoka");
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

TEST_CASE("files of a session that are gone become notices; the rest opens") {
  Files files;
  Bench bench;
  bench.session().open(files.a);
  bench.session().open(files.c);
  bench.drain();
  const Json json = saved(bench, files);
  std::filesystem::remove(files.a);
  Bench other;
  other.session().apply(json, files.folder / "");
  other.drain();
  CHECK(names(other.session()) == std::vector<std::string>{"c"});
  REQUIRE(other.session().notices().size() == 1);
  CHECK_THAT(other.session().notices()[0].sentence, ContainsSubstring("a.h5"));
  // What was wished for is over: a trace that is opened later does not jump anywhere.
  select_layer(other.session(), 2);
  write_trace(files.a, named("a"));
  other.open(files.a);
  CHECK(other.session().selection().layer == 2);
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

TEST_CASE("a session of odd values is taken as far as it makes sense") {
  Files files;
  Bench bench;
  bench.open(files.a);
  Json json = saved(bench, files);
  json["selection"]["layer"] = -5;
  json["selection"]["q_head"] = "three";
  json["selection"]["query"] = 1e300;
  json["selection"]["key"] = -7;
  json["selection"]["trace"] = 42;
  json["traces"] = "none";
  json["ticked"] = "all";
  json["unknown"] = {1, 2, 3};
  CHECK_NOTHROW(bench.session().apply(json, files.folder / ""));
  CHECK(bench.session().selection().layer == 0);
  CHECK_FALSE(bench.session().selection().key);
}

}  // namespace kvscope::gui::test::session_test

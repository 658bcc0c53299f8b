// What is open: files that are replaced, and sessions that come before their trace.
#include "gui/model/session/session.hpp"

#include <catch2/catch_test_macros.hpp>

#include "core/base/json.hpp"
#include "tests/gui_model/trace_files.hpp"

namespace kvscope::gui::test::session_test {

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
  std::filesystem::path c = write_trace(folder / "c.h5", named("c", 7));
};

void select_layer(Session& session, Index layer, const char* origin = "test") {
  session.select(origin, [&](Selection& s) { s.layer = layer; });
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

}  // namespace kvscope::gui::test::session_test

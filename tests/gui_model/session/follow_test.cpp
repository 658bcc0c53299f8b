// Recordings that grow while they are open: read on, renamed, places kept.
#include <chrono>
#include <thread>

#include "gui/model/session/session.hpp"
#include "gui/model/traces/trace_facts.hpp"
#include "tests/gui_model/trace_files.hpp"
#include "tests/support/test.hpp"
#include "traces/writer.hpp"

namespace kvscope::gui::test::follow_test {

/// A recorder that writes call after call.
struct GrowingFile {
  TempFolder folder;
  SyntheticTrace trace = make_trace({});
  fs::path path = folder / "live.h5";
  fs::path part = folder / "live.h5.part";
  std::unique_ptr<TraceReceiver> sink;
  std::size_t n_done = 0;

  explicit GrowingFile(std::size_t n_calls) {
    sink = create_trace(path, {.overwrite = false, .gzip_level = {}});
    sink->begin(trace.info);
    grow(n_calls);
  }
  /// Its time of writing moves on for certain: clocks of file systems are coarse.
  void grow(std::size_t n_calls) {
    kvscope::test::write_calls(trace, *sink, n_done, n_calls);
    n_done = n_calls;
    static int ticks = 0;
    fs::last_write_time(part, fs::last_write_time(part) + std::chrono::seconds(++ticks));
  }
  void finish() {
    grow(trace.info.calls.size());
    sink->finish(TraceStatus::complete);
    sink.reset();
  }
};

void look(Bench& bench) {
  bench.session().watch_files();
  bench.drain();
}

TEST_CASE("a session and bookmarks of a recording are good for the whole trace") {
  GrowingFile file(1);
  Bench bench;
  SyntheticTrace different = make_trace({});
  different.info.model_name = "other";  // and so another uuid
  const fs::path other = write_trace(file.folder / "other.h5", different);
  bench.open(other);
  bench.open(file.part);
  Session& session = bench.session();
  session.select("test", [](Selection& s) {
    s.trace = 1;
    s.layer = 2;
    s.query = 3;
  });
  session.add_bookmark("while it grows");
  REQUIRE(session.bookmarks()[0].trace.empty());
  const auto saved = session.to_json(file.part.parent_path());
  file.finish();
  look(bench);
  REQUIRE(session.documents()[1]->path() == file.path);
  CHECK(session.bookmarks()[0].trace == session.documents()[1]->info().uuid);
  CHECK(session.bookmarks()[0].name == "live.h5");
  session.select("test", [](Selection& s) { s.trace = 0; });
  session.go_to(0);
  CHECK(session.selection().trace == 1);
  CHECK(session.notices().empty());

  Bench later;
  later.session().apply(saved, file.part.parent_path());
  later.drain();
  REQUIRE(later.session().documents().size() == 2);
  CHECK(later.session().notices().empty());
  CHECK(later.session().document()->path() == file.path);
  CHECK(later.session().selection().layer == 2);
  CHECK(later.session().selection().query == 3);
  later.session().select("test", [](Selection& s) { s.trace = 0; });
  later.session().go_to(0);
  CHECK(later.session().selection().trace == 1);
}

TEST_CASE("a recording that grows is read on, and keeps its place under its final name") {
  GrowingFile file(1);
  Bench bench;
  bench.open(file.part);
  Session& session = bench.session();
  REQUIRE(session.document()->info().n_tokens == 8);
  session.select("test", [](Selection& s) { s.layer = 2; });
  const auto first = session.document();
  CHECK(first->source().read_k(2, 1, {0, 8}).dim(0) == 8);
  CHECK_FALSE(first->tokens_per_second());

  file.grow(2);
  look(bench);
  REQUIRE(session.document()->info().n_tokens == 16);
  CHECK(session.document()->growing_key() == first->growing_key());
  CHECK(session.document()->key() != first->key());
  CHECK(session.selection().layer == 2);
  CHECK(session.selection().query == 15);  // the newest one was looked at, and is
  session.select("test", [](Selection& s) { s.query = 5; });
  CHECK(session.document()->tokens_per_second());
  CHECK_THAT(trace_summary(*session.document()), ContainsSubstring("16 of 24 tokens"));

  file.finish();
  CHECK_FALSE(fs::exists(file.part));
  look(bench);
  REQUIRE(session.documents().size() == 1);
  CHECK(session.document()->path() == file.path);
  CHECK(session.document()->info().n_tokens == 24);
  CHECK(session.document()->info().status == TraceStatus::complete);
  CHECK(session.selection().layer == 2);
  CHECK(session.selection().query == 5);
  CHECK(session.notices().empty());
  session.open(file.path);  // as the queue does with what it made: it is open
  bench.drain();
  CHECK(session.documents().size() == 1);
}

TEST_CASE("rows of a grown recording are those of the whole one, read in parts or at once") {
  GrowingFile file(1);
  Bench bench;
  bench.open(file.part);
  Session& session = bench.session();
  const auto read_all = [](const Document& document) {
    const TraceInfo& info = document.info();
    for (const Index layer : info.layers) {
      for (const Index head : info.q_heads) {
        document.source().read_q(layer, head, info.rows);
        document.source().read_lse(layer, head, info.rows);
        document.source().read_v(layer, head / info.group(), {0, info.n_tokens});
      }
    }
  };
  read_all(*session.document());
  file.grow(3);
  look(bench);
  read_all(*session.document());
  file.finish();
  look(bench);
  const Document& grown = *session.document();
  Cache cache(1 << 20);
  const auto whole = open_document(file.path, cache);
  for (const Index layer : {0, 1, 2}) {
    const auto equal = [](const Tensor<float>& a, const Tensor<float>& b) {
      return a.shape() == b.shape() &&
             std::equal(a.flat().begin(), a.flat().end(), b.flat().begin());
    };
    CHECK(
        equal(grown.source().read_q(layer, 3, {0, 24}), whole->source().read_q(layer, 3, {0, 24})));
    CHECK(
        equal(grown.source().read_v(layer, 1, {5, 24}), whole->source().read_v(layer, 1, {5, 24})));
    CHECK(equal(grown.source().read_lse(layer, 2, {1, 23}),
                whole->source().read_lse(layer, 2, {1, 23})));
  }
}

}  // namespace kvscope::gui::test::follow_test

// Commands from the window: forms, command lines, the queue, programs that fail, hang
// or are missing.
#include "gui/model/runs/run_queue.hpp"

#include <chrono>
#include <fstream>
#include <thread>

#include "analysis/runs/work.hpp"
#include "gui/model/runs/child_program.hpp"
#include "tests/gui_model/trace_files.hpp"
#include "tests/support/places.hpp"
#include "tests/support/test.hpp"
#include "traces/reader.hpp"

namespace kvscope::gui::test::run_queue_test {

using Words = std::vector<std::string>;

/// A queue that is looked after until everything is over.
struct Queue {
  explicit Queue(const std::string& program = testing::kvscope_program().string())
      : runs(jobs, program) {}
  template <class Holds>
  void until(const Holds& holds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!holds()) {
      REQUIRE(std::chrono::steady_clock::now() < end);
      jobs.poll();
      runs.update();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  void finish() {
    until([&] { return runs.is_idle(); });
  }
  const Run& last() const { return runs.runs().back(); }
  JobRunner jobs{{}, 2};
  RunQueue runs;
};

/// A program of a few lines of shell.
std::string script(const TempFolder& folder, const std::string& lines) {
  const fs::path path = folder / "program";
  spill(path, "#!/bin/sh\n" + lines);
  fs::permissions(path, fs::perms::owner_all);
  return path.string();
}

TEST_CASE("a cancelled recording leaves a file that can be read, or none") {
  const TempFolder folder;
  Queue queue;
  const fs::path out = folder / "a.h5";
  const Words words = {"record", "--model", "verifier",  "--max-tokens",
                       "8192",   "--out",   out.string()};
  const auto id = queue.runs.add(words, out);
  const auto waiting = queue.runs.add(words, folder / "b.h5");
  queue.until([&] { return queue.runs.runs()[0].status.progress.done > 0; });
  queue.runs.cancel(waiting);
  CHECK(queue.last().status.state == JobState::cancelled);  // shown at once, not in its turn
  queue.runs.cancel(id);
  queue.finish();
  const Run& run = queue.runs.runs()[0];
  CHECK(run.status.state == JobState::cancelled);
  CHECK(queue.last().status.state == JobState::cancelled);
  CHECK(queue.runs.take_made().empty());
  if (run.has_made_file) {
    const TraceFile kept = TraceFile::open(out);
    CHECK(kept.info().status == TraceStatus::interrupted);
    CHECK(kept.info().n_tokens < 8192);
    CHECK_THAT(run.remark, ContainsSubstring("kept"));
  } else {
    CHECK_FALSE(fs::exists(out));
  }
}

TEST_CASE("the program tells its commands, and forms become command lines") {
  Queue queue;
  CHECK(queue.runs.commands().empty());
  queue.until([&] { return !queue.runs.commands().empty() || !queue.runs.problem().empty(); });
  REQUIRE(queue.runs.problem().empty());
  const auto& commands = queue.runs.commands();
  const auto find = [&](const std::string& name) {
    for (const CommandSpec& command : commands) {
      if (command.name == name) return &command;
    }
    FAIL("no command " << name);
    return &commands.front();
  };
  for (const char* name : {"record", "sweep", "analyze quest", "simulate retrieval", "export"})
    find(name);
  const CommandSpec* quest = find("analyze quest");
  CHECK(quest->find("TRACE")->is_argument);
  CHECK(quest->find("TRACE")->is_required);
  CHECK(quest->find("page-size")->preset == "16");
  CHECK(quest->find("step-source")->choices.size() == 3);
  CHECK(quest->find("progress") == nullptr);
  CHECK(
      command_words(
          *quest, {{"TRACE", "a b.h5"}, {"budget", "64"}, {"overwrite", "true"}, {"steps", ""}}) ==
      Words{"analyze", "quest", "a b.h5", "--overwrite", "--budget", "64"});
  CHECK(command_line_of({"analyze", "quest", "a b.h5"}) == "kvscope analyze quest 'a b.h5'");
  CHECK(command_words("record", {}, {{"prompt", "--x"}, {"yes", ""}}) ==
        Words{"record", "--prompt=--x", "--yes"});

  const TempFolder folder;
  Bench bench;
  const fs::path trace = write_trace(folder / "t.h5", make_trace({}));
  bench.open(trace);
  const CommandValues values = suggested_values(*find("sweep"), bench.session());
  CHECK(values.at("TRACE") == trace.string());
  CHECK(values.at("out") == (folder / "t-sweep.h5").string());
  CHECK(values.at("dense-layers") == "0");  // as the window's curves, not as methods' defaults
  CHECK(values.at("chunk") == "128");
  CHECK(values.at("selector") == "oracle-topk,quoka,quest,streamingllm");
  CHECK(suggested_values(*find("export"), bench.session()).at("out").ends_with("t-export.html"));
  spill(folder / "t-sweep.h5.part", "");
  CHECK(free_file(folder / "t-sweep.h5") == folder / "t-sweep-2.h5");
}

TEST_CASE(
    "a program that fails, says nothing, or is missing is one sentence, and the queue goes on") {
  const TempFolder folder;
  {
    Queue queue(
        script(folder,
               "echo '{\"stage\":\"s\",\"done\":1,\"total\":4,\"unit\":\"u\",\"seconds\":0}' >&2\n"
               "echo 'kvscope: the disk is full (see kvscope x --help)' >&2; exit 3\n"));
    queue.runs.add({"sweep"});
    queue.runs.add({"sweep"});
    queue.finish();
    for (const Run& run : queue.runs.runs()) {
      CHECK(run.status.state == JobState::failed);
      CHECK(run.status.error == "the disk is full");
      CHECK(run.status.progress.total == 4);
    }
    queue.runs.forget(1);
    CHECK(queue.runs.runs().size() == 1);
  }
  {
    Queue queue(script(folder, "kill -SEGV $$\n"));
    queue.runs.add({"sweep"});
    queue.finish();
    CHECK(queue.last().status.error == "sweep was killed (signal 11)");
  }
  {
    Queue queue(script(folder, "echo said; echo 'kvscope: warned' >&2; exit 5\n"));
    queue.runs.add({"analyze", "quest", "/t.h5"});
    queue.finish();
    CHECK(queue.last().status.state == JobState::done);
    CHECK(queue.last().said == "said\n");
    CHECK(queue.last().remark == "warned");
    CHECK(queue.last().title() == "analyze quest");
  }
  {
    Queue queue((folder / "missing").string());
    queue.runs.add({"sweep"});
    queue.finish();
    CHECK_THAT(queue.last().status.error, ContainsSubstring("cannot be started"));
    queue.until([&] {
      queue.runs.commands();
      return !queue.runs.problem().empty();
    });
    CHECK_THAT(queue.runs.problem(), ContainsSubstring("cannot be started"));
    queue.runs.ask_again();
    CHECK(queue.runs.problem().empty());
    fs::copy_file(script(folder, "exit 3\n"), folder / "missing");
    queue.until([&] {
      queue.runs.commands();
      return !queue.runs.problem().empty();
    });
    CHECK_THAT(queue.runs.problem(), ContainsSubstring("does not tell"));
  }
  {
    Queue queue(script(folder, "exec sleep 30\n"));
    queue.runs.commands();
    for (const Job& job : queue.jobs.active()) job.cancel();  // "Cancel all"
    queue.until([&] {
      queue.runs.commands();
      return !queue.runs.problem().empty();
    });
    CHECK_THAT(queue.runs.problem(), ContainsSubstring("cancelled"));
  }
  {
    Queue queue(script(folder, "echo '[{}]'\n"));  // of another version
    queue.until([&] {
      queue.runs.commands();
      return !queue.runs.problem().empty();
    });
    CHECK_THAT(queue.runs.problem(), ContainsSubstring("help --json"));
  }
}

TEST_CASE("a sweep that was killed or cancelled says what is kept, goes on, and starts over") {
  const TempFolder folder;
  const fs::path trace = write_trace(folder / "t.h5", make_trace({}));
  const fs::path out = folder / "s.csv";
  const Words sweep = {"sweep",    trace.string(), "--selector", "quest",
                       "--budget", "tokens=4",     "--out",      out.string()};
  Queue queue;
  queue.until([&] { return !queue.runs.commands().empty() || !queue.runs.problem().empty(); });
  queue.runs.add(sweep, out);
  queue.finish();
  REQUIRE(queue.last().status.state == JobState::done);
  const std::string whole = testing::read_file(out);
  fs::remove(out);

  // A store as a killed sweep leaves it: of all items but the last, which was cut off.
  Queue killed(script(
      folder, "printf '%s\\n' \"$@\" > " + (folder / "words").string() + "; kill -KILL $$\n"));
  killed.runs.add(sweep, out);
  const std::uint64_t id = killed.last().id;
  killed.finish();
  CHECK(killed.last().status.error == "sweep was killed (signal 9)");
  CHECK(killed.last().remark.empty());
  const auto leave = [](const fs::path& store, const std::string& torn) {
    fs::remove_all(store);
    Store(store).add_plan({"k", "sweep", 3, {"k"}});
    Store(store).add(answer_of("k-000000", {}));
    const fs::path segment = fs::directory_iterator(store / "answers")->path();
    std::ofstream(segment, std::ios::app) << torn;
  };
  leave(killed.last().store(), "{\"sum\":");
  killed.runs.again(id);
  killed.finish();
  CHECK(killed.last().remark == "1 of 3 items are kept in s.csv.store");

  fs::remove_all(queue.last().store());
  CHECK(queue.runs.flag_for(queue.last(), RunQueue::Again::resume) == "resume");
  CHECK_FALSE(queue.runs.flag_for(queue.last(), RunQueue::Again::replace).empty());
  queue.runs.again(queue.last().id);
  queue.finish();
  REQUIRE(queue.last().status.state == JobState::done);
  CHECK(testing::read_file(out) == whole);
  queue.runs.again(queue.last().id);  // what it wrote is there now
  queue.finish();
  REQUIRE(queue.last().status.state == JobState::done);
  CHECK_THAT(queue.last().remark, ContainsSubstring("is complete"));
  const std::uint64_t last = queue.last().id;
  queue.runs.again(last, RunQueue::Again::replace);
  queue.finish();
  REQUIRE(queue.last().status.state == JobState::done);
  CHECK(testing::read_file(out) == whole);
  fs::remove(out);
  fs::create_directory(queue.last().store());
  queue.runs.again(last, RunQueue::Again::resume);
  CHECK(queue.last().words.back() == "--resume");
  queue.finish();
  REQUIRE(queue.last().status.state == JobState::done);
  CHECK(testing::read_file(out) == whole);
  // What contradicts is taken away: one that was continued can start over.
  queue.runs.again(queue.last().id, RunQueue::Again::replace);
  CHECK(std::count(queue.last().words.begin(), queue.last().words.end(), "--resume") == 0);
  queue.finish();
  CHECK(queue.last().status.state == JobState::done);
}

TEST_CASE("a run that ends at once is looked at all the same") {
  const TempFolder folder;
  const fs::path out = folder / "a.h5";
  spill(folder / "a.h5.part", "half");
  Queue queue((folder / "missing").string());
  for (int i = 0; i < 500; ++i) {
    queue.runs.add({"record"}, out);
    CHECK(queue.last().status.state == JobState::waiting);  // until update() has looked
    queue.finish();
    REQUIRE(queue.last().remark == "a.h5.part is left: recover makes a whole file of it");
  }
}

}  // namespace kvscope::gui::test::run_queue_test

// Recordings that were killed, and what is recovered of them.
#include "traces/recover.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <stop_token>
#include <thread>

#include "tests/support/test.hpp"
#include "tests/traces/synthetic.hpp"
#include "traces/reader.hpp"
#include "traces/verify.hpp"
#include "traces/writer.hpp"

namespace kvscope::test::recover_test {

void require_prefix(const TraceFile& file, const SyntheticTrace& truth) {
  const TraceInfo& info = file.info();
  const TokenRange all = {0, info.n_tokens};
  REQUIRE(std::equal(file.tokens().begin(), file.tokens().end(), truth.tokens.begin()));
  for (const Index i : info.layers) {
    for (Index h = 0; h < info.n_kv; ++h) {
      const auto k = file.read_k(i, h, all);
      for (Index t = 0; t < all.end; ++t) {
        for (Index c = 0; c < info.d_head; ++c) REQUIRE(k(t, c) == truth.layers[i].k(h, t, c));
      }
    }
    for (Index h = 0; h < info.n_q; ++h) {
      const auto lse = file.read_lse(i, h, all);
      for (Index t = 0; t < all.end; ++t) REQUIRE(lse(t) == truth.layers[i].lse(h, t));
    }
  }
}

/// How a recorder writes.
struct Way {
  const char* name;
  WriterOptions options;
};

std::unique_ptr<TraceReceiver> recorder(const Way& way, const fs::path& out) {
  return create_trace(out, way.options);
}

/// Another process that records: it tells of each call with a byte once it is safe.
class OtherRecorder {
 public:
  OtherRecorder(const SyntheticTrace& truth, const Way& way, const fs::path& out) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    child_ = fork();
    if (child_ == 0) _exit(record(truth, way, out, ends[1]));
    REQUIRE(child_ > 0);
    close(ends[1]);
    told_ = ends[0];
  }
  /// Until n calls are safe or it has ended.
  void wait_for(std::size_t n) {
    char byte;
    while (said_.size() < n && read(told_, &byte, 1) == 1) said_ += byte;
  }
  /// All that it said, and how it ended.
  std::string end(int& status) {
    wait_for(SIZE_MAX);
    close(told_);
    waitpid(child_, &status, 0);
    return said_;
  }
  void kill() { ::kill(child_, SIGKILL); }

 private:
  static int record(const SyntheticTrace& truth, const Way& way, const fs::path& out,
                    int pipe_end) {
    try {
      const auto receiver = recorder(way, out);
      receiver->begin(truth.info);
      Index n_calls = 0;
      Index n_told = 0;
      const auto tell_calls = [&] {
        for (; n_told < n_calls - receiver->n_waiting_calls(); ++n_told)
          if (write(pipe_end, "c", 1) < 0) _exit(9);
      };
      write_calls(truth, *receiver, 0, truth.info.calls.size(), [&](std::size_t) {
        ++n_calls;
        tell_calls();
        std::this_thread::sleep_for(std::chrono::microseconds(300));
        tell_calls();
      });
      receiver->finish(TraceStatus::complete);
      tell_calls();
      return 0;
    } catch (...) {
      return 1;
    }
  }

  pid_t child_ = -1;
  int told_ = -1;
  std::string said_;
};

TEST_CASE("kill -9 at a random moment: no call is lost that was safe, nothing opens as complete") {
  constexpr std::size_t kQueue = 1 << 20;
  const Way way = GENERATE(Way{"a file", {}},
                           Way{"a file by threads", {.queue_bytes = kQueue, .n_threads = 3}});
  const SyntheticTrace truth = make_trace(plan_of_many_calls());
  const std::size_t n_calls = truth.info.calls.size();
  std::mt19937_64 rng(20261121);
  int n_killed_inside = 0;
  for (int round = 0; round < 60 && n_killed_inside < 6; ++round) {
    const TempFolder folder;
    const fs::path out = folder / "t.h5";
    const fs::path growing = out.string() + ".part";
    OtherRecorder other(truth, way, out);
    // Waits for a random number of calls, then for a random moment after it.
    other.wait_for(rng() % n_calls);
    std::this_thread::sleep_for(std::chrono::microseconds(rng() % 2000));
    other.kill();
    int status = 0;
    const auto n_safe = static_cast<Index>(other.end(status).size());
    INFO(way.name << ", round " << round << ", killed after " << n_safe << " safe calls");

    if (fs::exists(out)) {
      // It ended just before the signal: then everything has to be there. Of the calls that a
      // thread wrote last it may not have told.
      if (way.options.queue_bytes == 0) REQUIRE(n_safe == static_cast<Index>(n_calls));
      require_prefix(TraceFile::open(out), truth);
      continue;
    }
    if (!fs::exists(growing)) {
      REQUIRE(n_safe == 0);
      continue;
    }
    REQUIRE_THROWS_AS(TraceFile::open(growing), Error);
    if (n_safe == 0) continue;
    ++n_killed_inside;
    {
      const TraceFile part = TraceFile::open(growing, {.allow_partial = true});
      CHECK(part.info().status == TraceStatus::recording);
      CHECK(part.planned().n_tokens == 80);
      require_prefix(part, truth);
    }
    const fs::path kept = folder / "r.h5";
    const RecoverReport report = recover_trace(growing, kept, /*overwrite=*/false);
    CHECK(report.n_calls >= n_safe);
    CHECK(report.n_damaged_calls == 0);
    CHECK(report.n_planned_tokens == 80);
    const TraceFile file = TraceFile::open(kept);
    CHECK(file.info().status == TraceStatus::recovered);
    CHECK(file.info().n_tokens == report.n_tokens);
    CHECK(file.info().n_tokens ==
          truth.info.calls[static_cast<std::size_t>(report.n_calls) - 1].tokens.end);
    require_prefix(file, truth);
    check_verifies(kept);
  }
  CHECK(n_killed_inside >= 6);
}

TEST_CASE("damage in a part ends the recovery before the damaged call") {
  const SyntheticTrace truth = make_trace(plan_of_many_calls());
  const TempFolder folder;
  write_begun(truth, *create_trace(folder / "t.h5", {}), 10);
  damage(folder / "t.h5.part", truth.layers[2].k(1, 22, 4));  // token 22 is in call 5
  const RecoverReport report =
      recover_trace(folder / "t.h5.part", folder / "r.h5", /*overwrite=*/false);
  CHECK(report.n_calls == 5);
  CHECK(report.n_damaged_calls == 5);
  CHECK_HAS(report.first_problem, "/layers/2/k: call 5");
  require_prefix(TraceFile::open(folder / "r.h5"), truth);
}

TEST_CASE("a recovery that is stopped, while checking or copying, leaves no file") {
  const SyntheticTrace truth = make_trace(plan_of_many_calls());
  const TempFolder folder;
  write_begun(truth, *create_trace(folder / "t.h5", {}), 10);
  const std::string stage = GENERATE(as<std::string>(), "check", "copy");
  std::stop_source stop;
  bool was_there = false;
  const auto on_progress = [&](const Progress& progress) {
    if (progress.stage != stage) return;
    was_there = true;
    stop.request_stop();
  };
  CHECK_THROWS_AS(recover_trace(folder / "t.h5.part", folder / "r.h5", /*overwrite=*/false,
                                on_progress, stop.get_token()),
                  Interrupted);
  CHECK(was_there);
  CHECK(fs::exists(folder / "t.h5.part"));
  CHECK(folder.n_files() == 1);
}

}  // namespace kvscope::test::recover_test

#include "traces/recover.hpp"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <functional>
#include <random>
#include <stop_token>
#include <thread>

#include "core/base/error.hpp"
#include "tests/traces/synthetic.hpp"
#include "traces/reader.hpp"
#include "traces/verify.hpp"
#include "traces/writer.hpp"

namespace kvscope::test::recover_test {
namespace {

using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

Plan many_units() {
  Plan plan;
  plan.n_prompt = 60;
  plan.n_decode = 20;
  plan.chunk = 4;
  plan.rows = {0, 80};
  plan.capture.stats = true;
  plan.capture.attn_topk = 3;
  plan.capture.page_size = 8;
  return plan;
}

void require_prefix(const TraceFile& file, const SyntheticTrace& truth) {
  const TraceInfo& info = file.info();
  const TokenRange all = {0, info.n_tokens};
  REQUIRE(std::equal(file.tokens().begin(), file.tokens().end(), truth.tokens.begin()));
  for (const Index i : info.layers) {
    for (Index h = 0; h < info.n_kv; ++h) {
      const auto k = file.read_k(i, h, all);
      for (Index t = 0; t < all.end; ++t) {
        for (Index c = 0; c < info.d_head; ++c) {
          REQUIRE(k(t, c) == truth.layers[static_cast<std::size_t>(i)].k(h, t, c));
        }
      }
    }
    for (Index h = 0; h < info.n_q; ++h) {
      const auto lse = file.read_lse(i, h, all);
      for (Index t = 0; t < all.end; ++t) {
        REQUIRE(lse(t) == truth.layers[static_cast<std::size_t>(i)].lse(h, t));
      }
    }
  }
}

/// Records in a child process; `prepare` runs there between begin and the first unit. Returns the
/// pid; the child writes one byte per commit into `out`. It never returns into the test.
pid_t record_in_child(const SyntheticTrace& truth, const fs::path& path, int out,
                      std::uint64_t seed, const std::function<void()>& prepare) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  int status = 0;
  try {
    std::mt19937_64 rng(seed);
    auto receiver = create_trace(path, {.overwrite = true});
    receiver->begin(truth.info);
    if (prepare) prepare();
    write_units(truth, *receiver, 0, truth.info.units.size(), [&](std::size_t) {
      const char byte = 'c';
      if (write(out, &byte, 1) != 1) _exit(9);
      std::this_thread::sleep_for(std::chrono::microseconds(rng() % 400));
    });
    receiver->finish(TraceStatus::complete);
  } catch (const IoError& error) {
    std::string text = "!";
    text += error.what();
    if (write(out, text.data(), text.size()) < 0) _exit(9);
    status = 3;
  } catch (...) {
    status = 1;
  }
  _exit(status);
}

std::string read_all(int in) {
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(in, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(n));
  return text;
}

TEST_CASE(
    "kill -9 at a random moment, 20 times: no committed unit is lost, nothing opens as complete") {
  const SyntheticTrace truth = make_trace(many_units());
  const std::size_t n_units = truth.info.units.size();
  std::mt19937_64 rng(20261121);
  int n_killed_inside = 0;
  for (int round = 0; round < 20; ++round) {
    const TempFolder folder;
    const fs::path out = folder / "t.h5";
    int pipe_ends[2];
    REQUIRE(pipe(pipe_ends) == 0);
    const pid_t pid = record_in_child(truth, out, pipe_ends[1], rng(), {});
    REQUIRE(pid > 0);
    close(pipe_ends[1]);
    // Waits for a random number of commits, then for a random moment after it.
    const std::size_t wait_for = rng() % n_units;
    std::string seen;
    char byte;
    while (seen.size() < wait_for && read(pipe_ends[0], &byte, 1) == 1) seen += byte;
    std::this_thread::sleep_for(std::chrono::microseconds(rng() % 2000));
    kill(pid, SIGKILL);
    int status = 0;
    waitpid(pid, &status, 0);
    seen += read_all(pipe_ends[0]);
    close(pipe_ends[0]);
    const auto n_reported = static_cast<Index>(seen.size());
    INFO("round " << round << ", killed after " << n_reported << " reported commits");

    if (fs::exists(out)) {
      // It ended just before the signal: then everything has to be there.
      REQUIRE(n_reported == static_cast<Index>(n_units));
      require_prefix(TraceFile::open(out), truth);
      continue;
    }
    if (!fs::exists(folder / "t.h5.part")) {
      REQUIRE(n_reported == 0);
      continue;
    }
    REQUIRE_THROWS_AS(TraceFile::open(folder / "t.h5.part"), Error);
    if (n_reported == 0) continue;
    ++n_killed_inside;
    {
      const TraceFile part = TraceFile::open(folder / "t.h5.part", {.allow_partial = true});
      CHECK(part.info().status == TraceStatus::recording);
      CHECK(part.planned().n_tokens == 80);
      require_prefix(part, truth);
    }
    const RecoverReport report = recover_trace(folder / "t.h5.part", out, /*overwrite=*/false);
    CHECK(report.n_units >= n_reported);
    CHECK(report.n_damaged_units == 0);
    CHECK(report.n_planned_tokens == 80);
    const TraceFile file = TraceFile::open(out);
    CHECK(file.info().status == TraceStatus::recovered);
    CHECK(file.info().n_tokens == report.n_tokens);
    CHECK(file.info().n_tokens ==
          truth.info.units[static_cast<std::size_t>(report.n_units) - 1].tokens.end);
    require_prefix(file, truth);
    ThreadPool pool(1);
    const VerifyReport verified = verify_trace(out, {}, pool);
    INFO((verified.problems.empty() ? "" : verified.problems.front()));
    CHECK(verified.ok);
  }
  CHECK(n_killed_inside >= 10);
}

TEST_CASE("a full disk ends the recording with advice, and what was committed is recovered") {
  // RLIMIT_FSIZE with SIGXFSZ ignored makes writes beyond a size fail as a full disk does. Only
  // rows from 40 on are kept, and of the file's arrays /logits lies last: the first units fit, the
  // first one with rows does not.
  Plan plan = many_units();
  plan.capture.logits = true;
  plan.rows = {40, 80};
  const SyntheticTrace truth = make_trace(plan);
  const TempFolder folder;
  const fs::path out = folder / "t.h5";
  write_all(truth, *create_trace(folder / "whole.h5", {}));
  const std::string whole = slurp(folder / "whole.h5");
  const float first_logit = truth.logits(40, 0);
  const std::size_t limit =
      whole.find(std::string(reinterpret_cast<const char*>(&first_logit), sizeof first_logit));
  REQUIRE(limit != std::string::npos);
  int pipe_ends[2];
  REQUIRE(pipe(pipe_ends) == 0);
  const pid_t pid = record_in_child(truth, out, pipe_ends[1], 1, [&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit allowed = {limit, limit};
    setrlimit(RLIMIT_FSIZE, &allowed);
  });
  REQUIRE(pid > 0);
  close(pipe_ends[1]);
  const std::string said = read_all(pipe_ends[0]);
  close(pipe_ends[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  REQUIRE(WIFEXITED(status));
  INFO(said);
  CHECK(WEXITSTATUS(status) == 3);
  CHECK_THAT(said, ContainsSubstring("cannot write") && ContainsSubstring("kvscope recover"));
  CHECK(!fs::exists(out));
  const RecoverReport report = recover_trace(folder / "t.h5.part", out, /*overwrite=*/false);
  CHECK(report.n_units == 10);
  CHECK(report.n_tokens == 40);
  CHECK(TraceFile::open(out).info().status == TraceStatus::recovered);
}

TEST_CASE("an error after some units keeps them, and names the way to save them") {
  const SyntheticTrace truth = make_trace(many_units());
  const TempFolder folder;
  {
    auto receiver = create_trace(folder / "t.h5", {});
    receiver->begin(truth.info);
    write_units(truth, *receiver, 0, 3);
    CHECK_THAT(receiver->recovery_hint(), ContainsSubstring("kvscope recover"));
    REQUIRE_THROWS_WITH(recover_trace(folder / "t.h5.part", folder / "r.h5", false),
                        ContainsSubstring("being recorded"));
  }
  const RecoverReport report =
      recover_trace(folder / "t.h5.part", folder / "r.h5", /*overwrite=*/false);
  CHECK(report.n_units == 3);
  CHECK(report.n_tokens == 12);
  require_prefix(TraceFile::open(folder / "r.h5"), truth);
  CHECK(fs::exists(folder / "t.h5.part"));
}

TEST_CASE("damage in a part ends the recovery before the damaged unit") {
  const SyntheticTrace truth = make_trace(many_units());
  const TempFolder folder;
  {
    auto receiver = create_trace(folder / "t.h5", {});
    receiver->begin(truth.info);
    write_units(truth, *receiver, 0, 10);
  }
  std::string bytes = slurp(folder / "t.h5.part");
  const float value = truth.layers[2].k(1, 22, 4);  // token 22 is in unit 5
  const std::size_t at =
      bytes.find(std::string(reinterpret_cast<const char*>(&value), sizeof value));
  REQUIRE(at != std::string::npos);
  bytes[at] = static_cast<char>(bytes[at] ^ 4);
  spill(folder / "t.h5.part", bytes);
  const RecoverReport report =
      recover_trace(folder / "t.h5.part", folder / "r.h5", /*overwrite=*/false);
  CHECK(report.n_units == 5);
  CHECK(report.n_damaged_units == 5);
  CHECK_THAT(report.first_problem, ContainsSubstring("/layers/2/k: unit 5"));
  require_prefix(TraceFile::open(folder / "r.h5"), truth);
}

TEST_CASE("a recovery that is stopped, while checking or copying, leaves no file") {
  const SyntheticTrace truth = make_trace(many_units());
  const TempFolder folder;
  {
    auto receiver = create_trace(folder / "t.h5", {});
    receiver->begin(truth.info);
    write_units(truth, *receiver, 0, 10);
  }
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
  CHECK(std::distance(fs::directory_iterator(folder / "."), fs::directory_iterator()) == 1);
}

TEST_CASE("what cannot be recovered is refused with a sentence") {
  const TempFolder folder;
  spill(folder / "junk.h5.part", "this is no HDF5 file");
  REQUIRE_THROWS_AS(recover_trace(folder / "junk.h5.part", folder / "r.h5", false), FormatError);
  REQUIRE_THROWS_AS(recover_trace(folder / "missing.h5.part", folder / "r.h5", false), IoError);
  spill(folder / "there.h5", "precious");
  REQUIRE_THROWS_AS(recover_trace(folder / "junk.h5.part", folder / "there.h5", false), IoError);
  CHECK(slurp(folder / "there.h5") == "precious");
}

}  // namespace
}  // namespace kvscope::test::recover_test

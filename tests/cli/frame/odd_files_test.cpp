// Inputs that are no files, files that are not ours, and data that are no longer what was recorded:
// one sentence and exit code 3, without waiting for anybody.
#include <sys/stat.h>

#include <chrono>
#include <thread>

#include "tests/cli/run_program.hpp"
#include "traces/layout.hpp"

namespace kvscope::test::odd_files_test {

/// The command to its end; fails the test if it takes longer than `seconds`.
RunResult run_within(const Words& words, int seconds) {
  RunningProgram program(words);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (program.is_running() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  REQUIRE_FALSE(program.is_running());
  return program.wait();
}

TEST_CASE("a pipe without a writer, a device and a folder are no inputs") {
  const TempDir dir;
  const std::string pipe = dir.file("pipe");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const std::string out = dir.file("out");
  for (const std::string& input : {pipe, std::string("/dev/zero"), dir.path().string()}) {
    for (const Words& words :
         {Words{"figure", "budget", input, "--out", out + ".svg"},
          Words{"table", input, "--rows", "selector", "--value", "mass_mean"},
          Words{"notebook", "recall", input, "--out", out + ".ipynb"},
          Words{"recover", input, "--out", out + ".h5"}, Words{"info", input},
          Words{"verify", input}, Words{"analyze", "quest", input}, Words{"reproduce", input}}) {
      INFO(words[0] << " " << input);
      const RunResult run = run_within(words, 30);
      INFO(run.err);
      CHECK(run.code == 3);
      CHECK(run.err_is_one_line());
      CHECK_HAS(run.err, input);
    }
  }
  CHECK(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator{}) == 1);
}

TEST_CASE("a pipe that has a writer is waited for") {
  const TempDir dir;
  const std::string pipe = dir.file("pipe");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  std::thread writer([&] { std::ofstream(pipe) << "selector,budget,mass_mean\nquest,64,0.5\n"; });
  // Opened for both, so that the pipe has a writer whoever comes first.
  const std::fstream both(pipe, std::ios::in | std::ios::out);
  writer.join();
  RunningProgram program({"tokenize", "--text", pipe});
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  CHECK(program.is_running());  // waits for the end of what is written
}

TEST_CASE("overwriting does not take a .part file that is no recording") {
  const TempDir dir;
  const std::string out = dir.file("trace.h5");
  const std::string part = out + ".part";
  const Words words = {"record", out, "--max-tokens", "16", "--layers", "0", "--overwrite"};
  for (const std::string& theirs : {std::string("half of a download"),
                                    std::string("\x89HDF\r\n\x1a\n") + std::string(9000, 'x')}) {
    std::ofstream(part) << theirs;
    const RunResult run = kvscope_run(words);
    CHECK(run.code == 3);
    CHECK_HAS(run.err, part, "no recording");
    CHECK(read_file(part) == theirs);
    CHECK_FALSE(fs::exists(out));
  }
  fs::remove(part);
  for (const std::string& ours :
       {std::string(), std::string("\x89HDF\r\n\x1a\n") + std::string(1000, '\0')}) {
    std::ofstream(part) << ours;  // a recorder that was killed while it laid the file out
    ran(words);
    CHECK_FALSE(fs::exists(part));
  }
}

TEST_CASE("a flipped bit in recorded data ends analyses with the array's name") {
  const TempDir dir;
  const fs::path trace = dir.path() / "trace.h5";
  ran({"record", trace.string(), "--max-tokens", "48", "--decode", "2", "--layers", "2,3"});
  const std::string good = read_file(trace);
  const auto damage = [&](const char* array) {
    std::uint64_t offset = 0;
    {
      const TraceLayout layout = open_layout(h5::File::open(trace));
      offset = layout.data(layout.find(array).value()).file_offset().value();
    }
    std::string bytes = good;
    bytes[offset + 40] ^= 1;
    std::ofstream(trace, std::ios::binary | std::ios::trunc) << bytes;
  };
  for (const char* array : {"/layers/3/k", "/layers/3/q", "/layers/3/v"}) {
    std::ofstream(trace, std::ios::binary | std::ios::trunc) << good;
    damage(array);
    for (const Words& words :
         {Words{"analyze", "quest", trace.string()}, Words{"analyze", "quoka", trace.string()},
          Words{"sweep", trace.string(), "--selector", "quest", "--budget", "16", "--overwrite",
                "--out", dir.file("s.csv")}}) {
      // Reads the queries of decoding alone.
      if (std::string(array).ends_with("q") && words[1] == "quest") continue;
      // Which read no values.
      if (std::string(array).ends_with("v") && words[0] == "analyze") continue;
      INFO(words[0] << " " << words[1] << " " << array);
      refused(words, 3, {array, "recorded checksum", "kvscope verify"});
      CHECK_FALSE(fs::exists(dir.path() / "s.csv"));
    }
  }
}

}  // namespace kvscope::test::odd_files_test

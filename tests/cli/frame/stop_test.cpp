// SIGTERM and SIGINT end every long command soon, whatever it is at.
#include <chrono>
#include <csignal>
#include <iostream>
#include <thread>

#include "tests/cli/run_program.hpp"
#include "tests/support/sanitizers.hpp"

namespace kvscope::test::stop_test {

using Clock = std::chrono::steady_clock;

// A second where nothing else runs; these are for machines on which everything does.
constexpr double kMostSeconds = kAddressSanitizer || kThreadSanitizer ? 60 : 10;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

TEST_CASE("a signal ends every long command within seconds") {
  const TempDir dir;
  const auto file = [&](const std::string& name) { return dir.file(name); };
  const std::string trace = file("trace.h5");
  ran({"record", trace, "--max-tokens", "2048"});
  {
    std::ofstream table(file("long.csv"));
    table << "trace,phase,selector,budget_kind,layer,q_head,budget,dense,window,kept,mass_mean,"
             "mass_low,mass_high\n";
    for (int i = 0; i < 400000; ++i)
      table << "t,prefill,quest,tokens," << i / 400 << ',' << i % 400 << ",64,0,0,64,0.5,0.4,0.6\n";
  }
  const std::vector<Words> commands = {
      {"record", file("o1.h5"), "--max-tokens", "30000"},
      {"verify", trace, "--n-rows", "100000"},
      {"analyze", "quoka", trace},
      {"analyze", "theorem-b1", trace},
      {"analyze", "quest", trace},
      {"analyze", "geometry", trace},
      {"analyze", "query-selection", trace},
      {"analyze", "coverage", trace},
      {"analyze", "attention-map", trace, "--out", file("o8.h5")},
      {"ladder", trace, "--selector", "quest", "--budget", "64"},
      {"sweep", trace, "--selector", "quest,quoka,h2o,snapkv", "--budget", "64,256,1024", "--out",
       file("o11.csv")},
      {"fit", "loki", trace, "--out", file("o12.json")},
      {"simulate", "perplexity", "--selector", "quest,quoka,full", "--budget", "64,256", "--out",
       file("o13.csv")},
      {"simulate", "retrieval", "--protocol", "decode,all", "--selector", "full,quest", "--budget",
       "64", "--lengths", "8000", "--out", file("o14.csv")},
      {"simulate", "speculative", "--selector", "full,quest", "--budget", "64", "--out",
       file("o17.csv")},
      {"bench", "live", "--lengths", "20000"},
      {"bench", "select"},
      {"figure", "budget", file("long.csv"), "--metric", "mass", "--out", file("f.svg")},
      {"table", file("long.csv"), "--rows", "selector", "--value", "mass_mean"}};
  int signal = SIGTERM;
  for (const Words& words : commands) {
    RunningProgram program(words);
    const auto start = Clock::now();
    while (program.is_running() && seconds_since(start) < 0.7)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const bool was_running = program.is_running();
    const auto asked = Clock::now();
    program.send(signal);
    while (program.is_running() && seconds_since(asked) < kMostSeconds)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const double seconds = seconds_since(asked);
    const bool ended = !program.is_running();
    if (!ended) program.send(SIGKILL);
    const RunResult run = program.wait();
    INFO(words[0] << " " << words[1] << ": " << seconds << " s, exit code " << run.code << ": "
                  << run.err);
    CHECK(ended);
    if (was_running) {
      std::cout << "stop: " << words[0] << ' ' << words[1] << ' ' << seconds << " s\n";
      CHECK((run.code == 128 + signal || run.code == 0));  // 0: it was about to end anyway
    } else {
      CHECK(run.code == 0);  // a machine so fast that there is nothing to stop
    }
    signal = signal == SIGTERM ? SIGINT : SIGTERM;
  }
}

}  // namespace kvscope::test::stop_test

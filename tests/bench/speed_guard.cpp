// A guard of speed: what people wait for, as ratios of its processor time to that of other work in
// the same process, and a failure where a ratio grew by more than half.
//
//   build/release/tests/speed_guard [--target AVX2] [--only BENCH] [--measure]
//
// Exit code 1, with a sentence, if something is slower than its row of kExpected allows; 77 for a
// build whose speed says nothing. To measure the table anew, after a change that is meant to be
// slower or is faster: run `speed_guard --measure` and `speed_guard --target AVX2 --measure` on a
// processor with AVX-512, which print the lines of the table.
#include "tests/bench/speed_guard.hpp"

#include <fmt/format.h>
#include <hwy/targets.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/cpu.hpp"
#include "core/base/error.hpp"
#include "tests/support/only_target.hpp"

namespace {

using namespace kvscope;
using bench::Subject;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr const char* kWhyNot = "it is built with a sanitizer";
#elif !defined(__OPTIMIZE__)
constexpr const char* kWhyNot = "it is built without optimisation";
#elif !defined(NDEBUG)
constexpr const char* kWhyNot = "it is built with assertions";
#else
constexpr const char* kWhyNot = nullptr;
#endif

constexpr double kFactor = 1.5;  // what a ratio may grow by

struct Row {
  std::string_view bench;
  std::string_view target;  // AVX3 is Highway's name of AVX-512
  double ratio;
};

// On Xeon processors with and without AVX-512 (2026-11-24 and 25, --measure beside other work; runs
// differ by a tenth). Processors of another make divide their time otherwise and are not judged.
constexpr std::array<Row, 14> kExpected = {{
    {"first look at a file", "AVX3", 0.959},
    {"chunk attention", "AVX3", 4.15},
    {"prefill", "AVX3", 6.4},
    {"quoka's choice", "AVX3", 1.03},
    {"quest's choice", "AVX3", 1.67},
    {"sweep", "AVX3", 2.86},
    {"frame of a map", "AVX3", 2.7},
    {"first look at a file", "AVX2", 0.915},
    {"chunk attention", "AVX2", 4.05},
    {"prefill", "AVX2", 6.64},
    {"quoka's choice", "AVX2", 1.04},
    {"quest's choice", "AVX2", 1.44},
    {"sweep", "AVX2", 1.92},
    {"frame of a map", "AVX2", 2.8},
}};

struct Bench {
  const char* name;
  Subject (*make)();
};

// First what forks: that costs more the more memory there is.
constexpr Bench kBenches[] = {
    {"first look at a file", bench::first_look},
    {"chunk attention", bench::chunk_attention},
    {"prefill", bench::prefill},
    {"quoka's choice", bench::quoka_choice},
    {"quest's choice", bench::quest_choice},
    {"sweep", bench::sweep},
#ifdef KVSCOPE_WITH_WINDOW
    {"frame of a map", bench::map_frame},
#endif
};

bool is_bench(std::string_view name) {
  return std::any_of(std::begin(kBenches), std::end(kBenches),
                     [&](const Bench& bench) { return bench.name == name; });
}

struct Found {
  double ours = 1e30;       // seconds
  double reference = 1e30;  // seconds
  double ratio() const { return ours / reference; }
};

/// The smallest of each, which take turns: a slow phase of the machine meets both.
Found measure(const Subject& subject) {
  using Clock = std::chrono::steady_clock;
  subject.reference();
  subject.ours();
  Found found;
  const auto begin = Clock::now();
  for (int i = 0; i < 60; ++i) {
    if (i >= 8 && Clock::now() - begin > std::chrono::milliseconds(1500)) break;
    found.reference = std::min(found.reference, subject.reference());
    found.ours = std::min(found.ours, subject.ours());
  }
  return found;
}

std::optional<double> expected(std::string_view bench, std::string_view target) {
  for (const Row& row : kExpected)
    if (row.bench == bench && row.target == target) return row.ratio;
  return std::nullopt;
}

/// Of the target that is in use; what AVX-512 has beyond AVX3 serves none of these benches.
std::string target_name() {
  const std::vector<std::string> all = vector_targets();
  if (all.empty()) return "none";
  return all[0].starts_with("AVX3") ? "AVX3" : all[0];
}

/// True unless it is too slow.
bool judge(const Bench& bench, const std::string& target) {
  const std::optional<double> row = expected(bench.name, target);
  if (!row) {
    fmt::print("{:<21} not judged: no row for {}\n", bench.name, target);
    return true;
  }
  std::optional<Subject> subject;
  try {
    subject = bench.make();
  } catch (const IoError& error) {
    fmt::print("{:<21} not judged: {}\n", bench.name, error.what());
    return true;
  }
  Found found{.reference = 1.0};
  for (int i = 0; i < 3 && found.ratio() > kFactor * *row; ++i) {
    const Found next = measure(*subject);
    if (next.ratio() < found.ratio()) found = next;
  }
  fmt::print("{:<21} {:9.5f} {:9.5f} {:8.3f} {:8.3f} {:7.2f}\n", bench.name, found.ours,
             found.reference, found.ratio(), *row, found.ratio() / *row);
  if (found.ratio() * kFactor < *row)
    fmt::print("{} is faster than its row: update it\n", bench.name);
  if (found.ratio() <= kFactor * *row) return true;
  fmt::print(
      "{} is slower than it was: found {:.3f} times its reference, expected {:.3f} and at "
      "most {:.3f}\n",
      bench.name, found.ratio(), *row, kFactor * *row);
  return false;
}

/// The lines of the table, each the middle one of three.
void print_rows(const std::string& target) {
  for (const Bench& bench : kBenches) {
    const Subject subject = bench.make();
    std::array<double, 3> ratios{};
    for (double& ratio : ratios) ratio = measure(subject).ratio();
    std::sort(ratios.begin(), ratios.end());
    fmt::print("    {{\"{}\", \"{}\", {:.3g}}},\n", bench.name, target, ratios[1]);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (kWhyNot != nullptr) {
    fmt::print("not measured: {}\n", kWhyNot);
    return 77;
  }
  bool is_table = false;
  std::string_view only_bench;
  std::optional<test::OnlyTarget> only_target;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    if (word == "--measure") {
      is_table = true;
    } else if (word == "--target" && value == "AVX2") {
      only_target.emplace(HWY_AVX2);
      ++i;
    } else if (word == "--only" && is_bench(value)) {
      only_bench = argv[++i];
    } else {
      std::fputs("usage: speed_guard [--target AVX2] [--only BENCH] [--measure]\n", stderr);
      return 2;
    }
  }
  const std::string target = target_name();
#if defined(__x86_64__)
  if (!is_table && !__builtin_cpu_is("intel")) {
    fmt::print("not measured: the expected ratios are those of another make of processor\n");
    return 77;
  }
#endif
  if (is_table) {
    print_rows(target);
    return 0;
  }
  fmt::print("{:<21} {:>9} {:>9} {:>8} {:>8} {:>7}\n", target, "seconds", "reference", "ratio",
             "expected", "factor");
  bool is_good = true;
  for (const Bench& bench : kBenches)
    if (only_bench.empty() || only_bench == bench.name) is_good = judge(bench, target) && is_good;
#ifndef KVSCOPE_WITH_WINDOW
  fmt::print("{:<21} not judged: built without the explorer\n", "frame of a map");
#endif
  return is_good ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "speed_guard: %s\n", error.what());
  return 2;
}

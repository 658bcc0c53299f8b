// What the guarded opening of a file costs: the first look in a process of its own, beside the
// opening itself. The first looks of a program fork that process, the further ones find it there.
//
//   build/release/tests/bench_first_look [FOLDER] [REPEATS] [HEAP_MIB]
//
// Lays out two traces in FOLDER [.]: a small one (2 layers), and one of the size of an 8B model's
// (36 layers, 32 query and 8 KV heads of 128 channels, bfloat16; 28672 tokens: 11.8 GiB of holes,
// which take no room on the disk). Opens each of them REPEATS [50] times with the first look and
// without (a file that went well is not looked at again until it changes), and once more with
// HEAP_MIB [1024] of memory in use, as in an explorer whose cache is full; prints the smallest and
// the median time, and removes the files.
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/trace/memory_trace.hpp"
#include "traces/hash.hpp"
#include "traces/layout.hpp"
#include "traces/reader.hpp"

namespace {

using namespace kvscope;
namespace fs = std::filesystem;

TraceInfo plan(Index n_layers, Index n_q, Index n_kv, Index d_head, Index n_tokens, Index chunk) {
  TraceInfo info = make_trace_info(n_layers, n_q, n_kv, d_head, n_tokens, chunk);
  info.status = TraceStatus::recording;
  info.model_config = "{}";
  info.n_vocab = 151936;
  info.rope_kind = "default";
  info.rope_theta = 1e6;
  info.dtype = DType::bf16;
  info.created = "2026-01-01T00:00:00Z";
  info.writer = "bench";
  return info;
}

/// A recording of which every call is said to be there; its numbers are holes.
void lay_out(const fs::path& file, const TraceInfo& info) {
  fs::remove(file);
  TraceLayout layout = create_layout(file, info);
  const std::int64_t n_calls = static_cast<std::int64_t>(info.calls.size());
  layout.progress->write({0}, {1}, &n_calls);
  // Of the tokens, which are compared when the file is opened: all are 0.
  std::vector<std::uint64_t> checksums;
  for (const ForwardCall& call : info.calls) {
    const std::vector<TokenId> tokens(static_cast<std::size_t>(call.tokens.size()));
    Checksum checksum;
    checksum.add(tokens.data(), tokens.size() * sizeof tokens[0]);
    checksums.push_back(checksum.value());
  }
  layout.checksums(0).write({0}, {n_calls}, checksums.data());
  layout.file.close();
}

/// Processor time of this process and of its children, which tells more on a machine
/// with other work.
double processor_ms() {
  double sum = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    ::getrusage(who, &usage);
    for (const timeval& t : {usage.ru_utime, usage.ru_stime})
      sum += 1e3 * static_cast<double>(t.tv_sec) + 1e-3 * static_cast<double>(t.tv_usec);
  }
  return sum;
}

double milliseconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

void measure(const std::string& what, const fs::path& file, int repeats) {
  std::vector<double> with, without, processor;
  for (int i = 0; i < repeats; ++i) {
    // Another state of the file: it is looked at again.
    ::chmod(file.c_str(), i % 2 == 0 ? 0600 : 0644);
    const auto open = [&] {
      const TraceFile trace = TraceFile::open(file, {.allow_partial = true});
    };
    const double before = processor_ms();
    with.push_back(milliseconds(open));
    processor.push_back(processor_ms() - before);
    without.push_back(milliseconds(open));
  }
  std::sort(with.begin(), with.end());
  std::sort(without.begin(), without.end());
  std::sort(processor.begin(), processor.end());
  const std::size_t middle = with.size() / 2;
  fmt::print(
      "{:30} {:7.2f} / {:7.2f} ms; opening here {:6.2f} / {:6.2f} ms; processors {:6.2f} / {:6.2f} "
      "ms\n",
      what, with[0], with[middle], without[0], without[middle], processor[0], processor[middle]);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const fs::path folder = argc > 1 ? argv[1] : ".";
    const int repeats = std::max(argc > 2 ? std::atoi(argv[2]) : 50, 1);
    const std::size_t heap =
        static_cast<std::size_t>(std::max(argc > 3 ? std::atoll(argv[3]) : 1024, 0LL)) << 20U;
    const fs::path small = folder / "first_look_small.h5.part";
    const fs::path large = folder / "first_look_large.h5.part";
    lay_out(small, plan(2, 4, 2, 64, 2048, 256));
    lay_out(large, plan(36, 32, 8, 128, 28672, 4096));
    fmt::print("{:30} smallest / median of {}\n", "", repeats);
    measure(fmt::format("small trace ({:.1f} MiB)",
                        static_cast<double>(fs::file_size(small)) / (1 << 20)),
            small, repeats);
    measure(fmt::format("large trace ({:.1f} GiB)",
                        static_cast<double>(fs::file_size(large)) / (1 << 30)),
            large, repeats);
    const std::vector<char> used(heap, 'x');
    measure(fmt::format("small trace, {} MiB in use", used.size() >> 20U), small, repeats);
    measure(fmt::format("large trace, {} MiB in use", used.size() >> 20U), large, repeats);
    fs::remove(small);
    fs::remove(large);
  } catch (const Error& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
  return 0;
}

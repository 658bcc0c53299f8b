// How long the explorer waits for a large trace: opening it, and the first look at a head.
//
//   build/release/tests/bench_explorer_files [FOLDER] [TOKENS] [REPEATS] [HEAP_MIB]
//
// Writes a trace of the size of an 8B model's (36 layers, 32 query and 8 KV heads of 128 channels,
// bfloat16; 28672 tokens: 12.6 GiB) into FOLDER [.], random numbers in every layer. Opens it
// REPEATS [50] times after another process has looked at it and as often without (a file that went
// well is not looked at again until it changes), with HEAP_MIB [0] of memory in use, as in an
// explorer whose cache is full; then as the explorer does. Prints milliseconds (smallest / median),
// and removes the file.
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/rng.hpp"
#include "core/trace/memory_trace.hpp"
#include "gui/model/map/attention_row.hpp"
#include "gui/model/traces/document.hpp"
#include "traces/reader.hpp"
#include "traces/writer.hpp"

namespace {

using namespace kvscope;
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr Index kLayers = 36;
constexpr Index kQ = 32;
constexpr Index kKv = 8;
constexpr Index kHead = 128;
constexpr Index kChunk = 4096;

TraceInfo plan(Index n_tokens) {
  TraceInfo info = make_trace_info(kLayers, kQ, kKv, kHead, n_tokens, kChunk);
  info.status = TraceStatus::recording;
  info.model_config = "{}";
  info.n_vocab = 151936;
  info.rope_kind = "default";
  info.rope_theta = 1e6;
  info.dtype = DType::bf16;
  info.capture.lse = false;
  info.uuid = "00000000-0000-4000-8000-000000000000";
  info.created = "2026-01-01T00:00:00Z";
  info.writer = "bench";
  return info;
}

Tensor<float> noise(Shape shape, std::uint64_t seed) {
  Tensor<float> values = Tensor<float>::uninitialized(shape);
  const CounterRng rng{seed};
  for (Index i = 0; i < values.count(); ++i)
    values.data()[i] = static_cast<float>(rng.normal(static_cast<std::uint64_t>(i)));
  return values;
}

/// A recording whose last step, the rename after the checksums, is left out: its .part file.
fs::path write(const fs::path& folder, Index n_tokens) {
  const TraceInfo info = plan(n_tokens);
  const fs::path out = folder / "explorer_files_bench.h5";
  auto receiver = create_trace(out, {.overwrite = true});
  receiver->begin(info);
  const Tensor<float> q = noise({kQ, kChunk, kHead}, 1);
  const Tensor<float> k = noise({kKv, kChunk, kHead}, 2);
  std::uint64_t seed = 3;
  for (const ForwardCall& call : info.calls) {
    for (Index layer = 0; layer < kLayers; ++layer) {
      receiver->write(
          {.arrays = {{layer, "q", q.view()}, {layer, "k", k.view()}, {layer, "v", k.view()}}});
    }
    std::vector<TokenId> ids;
    for (Index i = 0; i < call.tokens.size(); ++i)
      ids.push_back(static_cast<TokenId>(seed++ % 1000));
    receiver->write_tokens(ids, {});
    receiver->commit_call();
  }
  return out.string() + ".part";
}

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

/// Opens `file` over and over: smallest and median time with the look by another process, which is
/// forked the first time, and without.
void measure_opening(const fs::path& file, int repeats) {
  std::vector<double> times[2];
  for (int i = 0; i < repeats; ++i) {
    ::chmod(file.c_str(), i % 2 == 0 ? 0600 : 0644);  // another state: it is looked at again
    for (std::vector<double>& of_kind : times) {
      const auto start = Clock::now();
      const TraceFile trace = TraceFile::open(file, {.allow_partial = true});
      of_kind.push_back(milliseconds_since(start));
    }
  }
  for (std::vector<double>& of_kind : times) std::sort(of_kind.begin(), of_kind.end());
  const std::size_t middle = times[0].size() / 2;
  fmt::print("opening, looked at by another process {:6.2f} / {:.2f} ms; alone {:.2f} / {:.2f}\n",
             times[0][0], times[0][middle], times[1][0], times[1][middle]);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const fs::path folder = argc > 1 ? argv[1] : ".";
    const Index n_tokens = argc > 2 ? std::atoll(argv[2]) / kChunk * kChunk : 28672;
    const int repeats = std::max(argc > 3 ? std::atoi(argv[3]) : 50, 1);
    const std::vector<char> in_use(argc > 4 ? std::strtoull(argv[4], nullptr, 10) << 20U : 0, 'x');
    const fs::path file = write(folder, n_tokens);
    fmt::print("{}: {:.1f} GiB\n", file.string(),
               static_cast<double>(fs::file_size(file)) / (1 << 30));
    measure_opening(file, repeats);
    gui::Cache cache(std::size_t{1} << 30);
    auto start = Clock::now();
    const auto document = gui::Document::open(file, cache);
    fmt::print("open (metadata)                     {:8.1f} ms\n", milliseconds_since(start));
    const Index last = document->info().n_tokens - 1;
    for (const Index layer : {0, 17, 35}) {
      start = Clock::now();
      const auto row = gui::attention_row(document->source(), layer, 5, last);
      fmt::print("a row of layer {:2}, not read before  {:8.1f} ms ({} keys)\n", layer,
                 milliseconds_since(start), row.probs.size());
      start = Clock::now();
      gui::attention_row(document->source(), layer, 5, last / 2);
      fmt::print("another row of it, from the cache   {:8.1f} ms\n", milliseconds_since(start));
    }
    fmt::print("cache: {:.0f} MiB\n", static_cast<double>(cache.bytes()) / (1 << 20));
    fs::remove(file);
  } catch (const Error& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
  return 0;
}

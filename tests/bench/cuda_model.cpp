// A model on the GPU against itself: time to first token and decode steps dense and under a method,
// what methods take to choose, and recording against the bare prefill. The tokens do not matter to
// the speed.
//
//   bench_cuda_model ttft DIR LENGTH CHUNK METHOD BUDGET REPEATS [f32|bf16]
//   bench_cuda_model decode DIR LENGTH CHUNK METHOD BUDGET STEPS [f32|bf16]
//   bench_cuda_model choice DIR LENGTH CHUNK METHODS|all BUDGET REPEATS [f32|bf16]
//   bench_cuda_model record DIR LENGTH CHUNK OUT.h5 DTYPE REPEATS [f32|bf16]
//
// choice: a chunk and a decode step behind LENGTH tokens, milliseconds a layer, over all layers.
// record: also into nothing, which is what the rows' way to the host costs. What is counted ends
// when the trace has its name.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/whole_file.hpp"
#include "core/cuda/backend.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/spec_lists.hpp"
#include "core/sim/live.hpp"
#include "traces/recorder.hpp"
#include "traces/writer.hpp"

namespace {

using namespace kvscope;
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string text_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return fmt::format("{:.3f} ({:.3f} to {:.3f})", values[values.size() / 2], values.front(),
                     values.back());
}

struct Setting {
  const Transformer& model;
  std::vector<TokenId> tokens;
  Index chunk = 0;
  int n_repeats = 0;
  ThreadPool& pool;
};

double bare_prefill(const Setting& s) {
  const auto store = s.model.make_store(static_cast<Index>(s.tokens.size()));
  const auto start = Clock::now();
  const auto step = static_cast<std::size_t>(s.chunk);
  for (std::size_t at = 0; at < s.tokens.size(); at += step) {
    const std::size_t n = std::min(step, s.tokens.size() - at);
    s.model.forward(std::span(s.tokens).subspan(at, n), *store, s.pool);
  }
  return seconds_since(start);
}

LiveTimes time_method(const Setting& s, const MethodSpec& method, const Budget& budget) {
  std::optional<Budget> own;
  if (!method.caps().budgets.empty()) own = budget;
  LiveSequence live(s.model, {method, own, std::nullopt}, static_cast<Index>(s.tokens.size()),
                    s.pool);
  const auto start = Clock::now();
  live.prefill(s.tokens, s.chunk, PrefillMode::sparse, Logits::last);
  LiveTimes times = live.stats().times;
  times.total = seconds_since(start);
  return times;
}

// In turns, so that both meet the same machine; a short one first that is not counted.
void ttft(const Setting& s, const std::string& method, const std::string& budget_text) {
  const Budget budget = Budget::parse("tokens=" + budget_text);
  Setting brief = s;
  brief.tokens.resize(std::min<std::size_t>(s.tokens.size(), 4096));
  time_method(brief, "full", budget);
  time_method(brief, method, budget);
  std::vector<double> dense, sparse, ratio;
  LiveTimes of_dense, of_sparse;
  for (int i = 0; i < s.n_repeats; ++i) {
    of_dense = time_method(s, "full", budget);
    of_sparse = time_method(s, method, budget);
    dense.push_back(of_dense.total);
    sparse.push_back(of_sparse.total);
    ratio.push_back(of_dense.total / of_sparse.total);
  }
  fmt::print("{} tokens in chunks of {}; seconds, median (least to most) of {}\n", s.tokens.size(),
             s.chunk, s.n_repeats);
  fmt::print("  full         {}, attention {:.3f}\n", text_of(dense), of_dense.attention);
  fmt::print("  {:<12} {}, attention {:.3f}, choice {:.3f}\n", method, text_of(sparse),
             of_sparse.attention, of_sparse.selection);
  fmt::print("  full over {}: {}\n", method, text_of(ratio));
}

// Steps after a dense prefill, one token at a time, each waited for as in greedy decoding.
void time_steps(const Setting& s, const MethodSpec& method, const std::optional<Budget>& budget) {
  constexpr int kUncounted = 4;
  const auto n_tokens = static_cast<Index>(s.tokens.size());
  LiveSequence live(s.model, {method, budget, std::nullopt}, n_tokens + s.n_repeats + kUncounted,
                    s.pool);
  live.prefill(s.tokens, s.chunk, PrefillMode::dense, Logits::last);
  live.set_sparse(true);
  std::vector<double> milliseconds;
  LiveTimes before;
  for (int i = -kUncounted; i < s.n_repeats; ++i) {
    if (i == 0) before = live.stats().times;
    const auto start = Clock::now();
    live.run(Phase::decode, std::span(s.tokens).first(1), Logits::last);
    if (i >= 0) milliseconds.push_back(1e3 * seconds_since(start));
  }
  const LiveTimes& after = live.stats().times;
  const auto a_step = [&](double seconds) { return 1e3 * seconds / s.n_repeats; };
  fmt::print("  {:<12} {}, attention {:.3f}, choice {:.3f}\n", method.text(), text_of(milliseconds),
             a_step(after.attention - before.attention),
             a_step(after.selection - before.selection));
}

void decode(const Setting& s, const std::string& method, const std::string& budget_text) {
  fmt::print("after {} tokens; milliseconds a step, median (least to most) of {}\n",
             s.tokens.size(), s.n_repeats);
  time_steps(s, "full", std::nullopt);
  time_steps(s, method, Budget::parse("tokens=" + budget_text));
}

/// A layer's milliseconds in calls of n_tok tokens behind s.tokens, one that is not counted first.
struct LayerTimes {
  double choice = 0.0, attention = 0.0;
};

LayerTimes time_calls(const Setting& s, LiveSequence& live, Phase phase, std::size_t n_tok) {
  LiveTimes before;
  for (int i = -1; i < s.n_repeats; ++i) {
    if (i == 0) before = live.stats().times;
    live.run(phase, std::span(s.tokens).first(n_tok), Logits::last);
  }
  const LiveTimes& after = live.stats().times;
  const double n = 1e-3 * s.n_repeats * static_cast<double>(s.model.config().n_layers);
  return {(after.selection - before.selection) / n, (after.attention - before.attention) / n};
}

void choice(const Setting& s, std::string methods, const std::string& budget_text) {
  const auto length = static_cast<double>(s.tokens.size());
  const double budget = std::stod(budget_text);
  if (methods == "all") {
    methods.clear();
    for (const auto& entry : selector_registry().entries())
      methods += (methods.empty() ? "" : ",") + entry.name;
  }
  fmt::print("milliseconds of a layer behind {} tokens, {} calls of each kind\n", s.tokens.size(),
             s.n_repeats);
  fmt::print("method,chunk_choice,chunk_attention,step_choice,step_attention\n");
  for (const MethodSpec& method : parse_methods({methods}, "METHODS")) {
    const SelectorCaps& caps = method.caps();
    std::optional<Budget> own;
    if (!caps.budgets.empty()) {
      const Budget::Kind kind = caps.budgets.front();
      own = Budget{kind, kind == Budget::Kind::tokens  ? budget
                         : kind == Budget::Kind::ratio ? budget / length
                         : kind == Budget::Kind::pages ? budget / 16.0
                                                       : 0.95};
    }
    try {
      const auto n_chunk = static_cast<std::size_t>(s.chunk);
      LiveSequence live(s.model, {method, own, /*dense_layers=*/0},
                        static_cast<Index>(length) + (s.n_repeats + 1) * (s.chunk + 1), s.pool);
      live.prefill(s.tokens, 1024, PrefillMode::dense, Logits::last);
      live.set_sparse(true);
      fmt::print("{}", method.text());
      for (const Phase phase : {Phase::prefill, Phase::decode}) {
        if (!caps.is_defined(phase) && !caps.budgets.empty()) {
          fmt::print(",,");
          continue;
        }
        const LayerTimes times = time_calls(s, live, phase, phase == Phase::prefill ? n_chunk : 1);
        fmt::print(",{:.4f},{:.4f}", times.choice, times.attention);
      }
      fmt::print("\n");
    } catch (const std::exception& error) {
      fmt::print("# {}: {}\n", method.text(), error.what());
    }
    std::fflush(stdout);
  }
}

/// Where rows are let go at once.
class Nothing final : public TraceReceiver {
 public:
  void begin(const TraceInfo&) override {}
  void write(const CallRows&) override {}
  void write_tokens(std::span<const TokenId>, std::span<const std::string>) override {}
  void commit_call() override {}
  void finish(TraceStatus) override {}
};

double peak_gigabytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1e6;
}

// In turns, so that all meet the same machine; the first turn is not counted.
void record(const Setting& s, const fs::path& dir, const fs::path& out, const std::string& dtype) {
  RecordOptions options;
  options.chunk = s.chunk;
  options.origin.model_name = "random";
  options.origin.model_config = read_whole_file(dir / "config.json", std::size_t{1} << 20);
  options.origin.text_source = "ids";
  options.dtype = enum_from_name<DType>(dtype).value();
  WriterOptions writing;
  writing.overwrite = true;
  writing.write_beside(s.pool.n_threads());
  struct Row {
    const char* name;
    std::function<double()> once;
    std::vector<double> seconds = {}, ratio = {};
  };
  std::int64_t n_bytes = 0;
  const auto recorded = [&](const std::function<std::unique_ptr<TraceReceiver>()>& make) {
    const auto start = Clock::now();
    const auto receiver = make();
    n_bytes =
        record_trace(s.model, nullptr, s.tokens, options, *receiver, s.pool, {}, {}).bytes_written;
    return seconds_since(start);
  };
  std::vector<Row> rows;
  rows.push_back({"bare", [&] { return bare_prefill(s); }});
  rows.push_back(
      {"into nothing", [&] { return recorded([] { return std::make_unique<Nothing>(); }); }});
  rows.push_back({"one file", [&] {
                    const double t = recorded([&] { return create_trace(out, writing); });
                    fs::remove(out);
                    return t;
                  }});
  for (int i = -1; i < s.n_repeats; ++i) {
    double bare = 0.0;
    for (Row& row : rows) {
      const double t = row.once();
      if (&row == &rows.front()) bare = t;
      if (i < 0) continue;
      row.seconds.push_back(t);
      row.ratio.push_back(t / bare);
    }
  }
  fmt::print("{} tokens in chunks of {}, {:.2f} GB; seconds, median (least to most) of {}\n",
             s.tokens.size(), s.chunk, static_cast<double>(n_bytes) / 1e9, s.n_repeats);
  for (const Row& row : rows)
    fmt::print("  {:<12} {}, over bare {}\n", row.name, text_of(row.seconds), text_of(row.ratio));
  fmt::print("  at most {:.2f} GB of host memory at a time, the mapped weights included\n",
             peak_gigabytes());
}

int run(const std::vector<std::string>& words) {
  if (words.size() < 7 || (words[0] != "ttft" && words[0] != "decode" && words[0] != "choice" &&
                           words[0] != "record")) {
    fmt::print(stderr, "see the head of tests/bench/cuda_model.cpp\n");
    return 2;
  }
  const fs::path dir = words[1];
  const bool is_half = words.size() < 8 || words[7] == "bf16";
  if (std::stoi(words[6]) < 1) throw ConfigError("expected at least one repeat, found " + words[6]);
  const auto start = Clock::now();
  const Transformer model =
      Transformer::load(dir, gpu::cuda_backend({0, is_half, is_half ? DType::bf16 : DType::f32}));
  fmt::print("loaded in {:.1f} s, products and keys in {}\n", seconds_since(start),
             is_half ? "bf16" : "f32");
  ThreadPool pool(8);
  Setting s{model, {}, std::stoll(words[3]), std::stoi(words[6]), pool};
  for (Index t = 0; t < std::stoll(words[2]); ++t)
    s.tokens.push_back(static_cast<TokenId>((t * 7919 + t * t / 11) % model.config().n_vocab));
  if (words[0] == "ttft") {
    ttft(s, words[4], words[5]);
  } else if (words[0] == "decode") {
    decode(s, words[4], words[5]);
  } else if (words[0] == "choice") {
    choice(s, words[4], words[5]);
  } else {
    record(s, dir, words[4], words[5]);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_cuda_model: {}\n", error.what());
    return 1;
  }
}

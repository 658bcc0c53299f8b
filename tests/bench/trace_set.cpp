// What a long recording takes as a trace set, planned and tried with made-up numbers as far as a
// limit allows.
//
//   bench_trace_set [--lengths N] [--n-layers N] [--dir DIR] [--limit GIB] ...
#include <sys/resource.h>
#include <unistd.h>

#include "analysis/cli/kit.hpp"
#include "analysis/cli/stopwatch.hpp"
#include "analysis/units/unit_cost.hpp"
#include "core/base/rng.hpp"
#include "core/sim/replay.hpp"
#include "core/sim/replay_heads.hpp"
#include "core/trace/memory_trace.hpp"
#include "tests/bench/bench_program.hpp"
#include "traces/reader.hpp"
#include "traces/trace_set.hpp"

namespace kvscope::cli {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr double kShareOfMemory = 0.5;  // of what is free that a tried unit may take
constexpr Index kFewestTokens = 256;

/// The largest memory that this process has had, in bytes.
double peak_memory() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return 1024.0 * static_cast<double>(usage.ru_maxrss);
}

double free_memory() {
  return static_cast<double>(::sysconf(_SC_AVPHYS_PAGES)) *
         static_cast<double>(::sysconf(_SC_PAGESIZE));
}

/// q, k and v of one layer, as they are stored.
double layer_bytes(const TraceInfo& info) {
  return static_cast<double>((info.n_q + 2 * info.n_kv) * info.d_head * info.n_tokens) *
         static_cast<double>(size_of(info.dtype));
}

/// Rows of seeded noise without end: every head, unit and layer takes another stretch of it.
class Noise {
 public:
  explicit Noise(std::uint64_t seed) : numbers_(std::size_t{1} << 20), rng_({seed}) {
    for (std::size_t i = 0; i < numbers_.size(); ++i)
      numbers_[i] = static_cast<float>(rng_.uniform(i) * 2.0 - 1.0);
  }
  void fill(std::span<float> out, std::uint64_t which) const {
    std::size_t at = rng_.bits(which) % numbers_.size();
    for (std::size_t done = 0; done < out.size();) {
      const std::size_t n = std::min(out.size() - done, numbers_.size() - at);
      std::copy_n(numbers_.data() + at, n, out.data() + done);
      done += n;
      at = (at + n + 1) % numbers_.size();  // no period of a power of two
    }
  }

 private:
  std::vector<float> numbers_;
  CounterRng rng_;
};

/// Holds one unit of one layer at a time.
void write_noise(TraceReceiver& receiver, const TraceInfo& info, const ProgressFn& progress,
                 const std::stop_token& stop) {
  const Noise noise(1);
  receiver.begin(info);
  std::uint64_t which = 0;
  std::int64_t n_done = 0;
  for (const TraceUnit& unit : info.units) {
    const Index n_tok = unit.tokens.size();
    Tensor<float> q({info.n_q, n_tok, info.d_head});
    Tensor<float> k({info.n_kv, n_tok, info.d_head});
    Tensor<float> v({info.n_kv, n_tok, info.d_head});
    for (const Index layer : info.layers) {
      if (stop.stop_requested()) throw Interrupted("bench_trace_set was stopped");
      for (Tensor<float>* one : {&q, &k, &v}) noise.fill(one->flat(), which++);
      receiver.write_layer({.layer = layer, .q = q.view(), .k = k.view(), .v = v.view()});
    }
    std::vector<TokenId> ids(static_cast<std::size_t>(n_tok));
    for (std::size_t i = 0; i < ids.size(); ++i)
      ids[i] = static_cast<TokenId>((unit.tokens.begin + static_cast<Index>(i)) % info.n_vocab);
    receiver.write_tokens(ids, {});
    receiver.commit_unit();
    if (progress)
      progress({"write", ++n_done, static_cast<std::int64_t>(info.units.size()), "units"});
  }
  receiver.finish(TraceStatus::complete);
}

/// The set's files, removed with this object.
class TemporarySet {
 public:
  TemporarySet(const fs::path& dir, const TraceInfo& info, Index per_part)
      : manifest_(dir / fmt::format("kvscope-bench-{}.kvset", ::getpid())) {
    for (const SetPart& part : plan_parts(manifest_, info, per_part)) {
      files_.push_back(dir / part.file);
      files_.push_back(dir / (part.file + ".part"));
    }
    files_.push_back(manifest_.string() + ".part");
    files_.push_back(manifest_);
  }
  ~TemporarySet() {
    std::error_code ignored;
    for (const fs::path& file : files_) fs::remove(file, ignored);
  }
  TemporarySet(const TemporarySet&) = delete;
  TemporarySet& operator=(const TemporarySet&) = delete;
  const fs::path& manifest() const { return manifest_; }

 private:
  fs::path manifest_;
  std::vector<fs::path> files_;
};

class BenchTraceSet final : public BenchProgram {
 public:
  CommandCard card() const override {
    return {
        "bench_trace_set", "sizes, memory and time of a long recording as a trace set",
        "Plans a recording of --n-layers layers and --lengths tokens: what it takes as one file "
        "and as sets, what a unit of a sweep (one layer) reads and holds. "
        "Then it writes such a set of made-up numbers, with all tokens and as many layers as "
        "--limit allows, at least two, and fewer tokens where these do not fit; opens it, reads "
        "a layer, and replays a decode step of quest over it, with as many tokens as half of "
        "the free memory holds. Times of the plan follow from these rates in proportion to "
        "bytes and tokens. The files are removed at the end. --limit 0 plans without trying."};
  }

 protected:
  void declare_bench(OptionSet& options) override {
    options.add("lengths", "N", "tokens of the recording", n_tokens_, in(1, 100'000'000));
    options.add("n-layers", "N", "layers", n_layers_, in(1, 1000));
    options.add("n-q", "N", "query heads", n_q_, in(1, 1024));
    options.add("n-kv", "N", "KV heads", n_kv_, in(1, 1024));
    options.add("d-head", "N", "channels of a head", d_head_, in(1, 1024));
    options.add("dtype", "TYPE", "storage type of q, k and v", dtype_);
    options.add("chunk", "N", "tokens of a unit of the recording", chunk_, in(1, 1 << 20));
    options.add("split", "K", "layers of a part of the set that is tried", per_part_, in(1, 1000));
    options.add("dir", "DIR", "folder for the set: which disk to measure", dir_).kind =
        ValueKind::folder;
    options.add("limit", "GIB", "most GiB to write; 0 = plan only", limit_);
  }

  void check_usage() const override {
    if (n_q_ % n_kv_ != 0)
      throw UsageError("--n-q: expected a multiple of the {} KV heads, found {}", n_kv_, n_q_);
    if (!(limit_ >= 0.0) || limit_ > 1e6)
      throw UsageError("--limit: expected a value in [0, 1e6] GiB, found {}", limit_);
  }

  Json measure(const BenchMeans& means) const override {
    const TraceInfo whole = info_of(n_layers_, n_tokens_);
    Json report = {{"tokens", n_tokens_},   {"layers", n_layers_},
                   {"n_q", n_q_},           {"n_kv", n_kv_},
                   {"d_head", d_head_},     {"dtype", std::string(name_of(dtype_))},
                   {"chunk", chunk_},       {"layer_bytes", layer_bytes(whole)},
                   {"plan", plan_of(whole)}};
    if (limit_ > 0.0) {
      const Json tried = try_it(whole, means);
      report["tried"] = tried;
      report["units"] = units_of(whole, &tried);
    } else {
      report["units"] = units_of(whole, nullptr);
    }
    return report;
  }

 private:
  TraceInfo info_of(Index n_layers, Index n_tokens) const {
    TraceInfo info = make_trace_info(n_layers, n_q_, n_kv_, d_head_, n_tokens, chunk_);
    info.dtype = dtype_;
    info.capture.lse = false;
    info.n_vocab = 1024;
    return info;
  }

  /// One file, and sets of ever smaller parts.
  Json plan_of(const TraceInfo& whole) const {
    Json rows = Json::array();
    rows.push_back({{"split", "one file"},
                    {"files", 1},
                    {"file_bytes", estimated_file_bytes(whole)},
                    {"set_bytes", estimated_file_bytes(whole)}});
    for (Index per_part = 8; per_part >= 1; per_part /= 2) {
      if (per_part >= n_layers_ && per_part > 1) continue;
      const std::vector<SetPart> parts = plan_parts("set.kvset", whole, per_part);
      rows.push_back({{"split", per_part == 1 ? "layers" : fmt::format("layers={}", per_part)},
                      {"files", parts.size()},
                      {"file_bytes", estimated_file_bytes(info_of_part(whole, parts.front()))},
                      {"set_bytes", estimated_set_bytes(whole, per_part)}});
    }
    return rows;
  }

  /// What is tried: all tokens and the layers that fit, at least two (one, if there is one).
  TraceInfo smaller(const TraceInfo& whole) const {
    const double limit = limit_ * kGiB;
    const Index least = std::min<Index>(2, n_layers_);
    const Index n_layers =
        std::clamp(static_cast<Index>(limit / layer_bytes(whole)), least, n_layers_);
    const double most_tokens = 0.99 * limit * static_cast<double>(n_tokens_) /
                               (layer_bytes(whole) * static_cast<double>(n_layers));
    const Index n_tokens = std::min(n_tokens_, static_cast<Index>(most_tokens));
    if (n_tokens < std::min(n_tokens_, kFewestTokens))
      throw UsageError("--limit: {} GiB hold {} tokens of {} layers, expected at least {}", limit_,
                       n_tokens, n_layers, kFewestTokens);
    return info_of(n_layers, n_tokens);
  }

  Json try_it(const TraceInfo& whole, const BenchMeans& means) const {
    const TraceInfo info = smaller(whole);
    const double estimate = static_cast<double>(estimated_set_bytes(info, per_part_));
    std::error_code error;
    const fs::space_info space = fs::space(dir_, error);
    if (error) throw IoError("{}: {}", dir_.string(), error.message());
    if (estimate > static_cast<double>(space.available))
      throw UsageError("--limit: the set needs {} and {} has {} left", bytes_text(estimate),
                       dir_.string(), bytes_text(static_cast<double>(space.available)));
    const TemporarySet files(dir_, info, per_part_);
    Json tried = {{"layers", info.n_layers}, {"tokens", info.n_tokens}, {"limit_gib", limit_}};
    const double memory_before = peak_memory();
    tried["write_seconds"] = seconds_of([&] {
      const auto receiver = create_trace_set(files.manifest(), {}, per_part_);
      write_noise(*receiver, info, means.progress, means.stop);
      tried["bytes"] = receiver->bytes_written();
    });
    tried["write_memory"] = peak_memory() - memory_before;

    std::optional<TraceFile> trace;
    tried["open_seconds"] = seconds_of([&] { trace.emplace(TraceFile::open(files.manifest())); });
    tried["read_seconds"] = seconds_of([&] {
      for (Index head = 0; head < n_kv_; ++head) {
        trace->read_k(0, head, {0, info.n_tokens});
        trace->read_v(0, head, {0, info.n_tokens});
      }
    });
    tried["read_bytes"] = 2.0 * static_cast<double>(n_kv_ * d_head_ * info.n_tokens) *
                          static_cast<double>(size_of(dtype_));
    tried["read_memory"] = peak_memory() - memory_before;

    const bool by_head = goes_by_head(info, quest(), {});
    const double fitting =
        kShareOfMemory * free_memory() / layer_memory(info, /*n_rows=*/1, by_head);
    const Index n_unit = fitting >= 1.0
                             ? info.n_tokens
                             : static_cast<Index>(fitting * static_cast<double>(info.n_tokens));
    ReplayOptions options;
    options.calls.phase = Phase::decode;
    options.calls.at = {{n_unit - 1, n_unit}};
    options.dense_layers = 0;
    const std::vector<ReplayPair> pairs = quest();
    const double before_unit = peak_memory();
    tried["unit_tokens"] = n_unit;
    tried["unit_seconds"] = seconds_of(
        [&] { replay_layers(*trace, nullptr, {0}, pairs, options, means.pool, {}, means.stop); });
    tried["unit_memory"] = peak_memory() - memory_before;
    tried["unit_memory_is_peak"] = peak_memory() > before_unit;
    tried["unit_memory_planned"] = layer_memory(info_of(1, n_unit), /*n_rows=*/1, by_head);
    return tried;
  }

  static std::vector<ReplayPair> quest() {
    return {{MethodSpec("quest"), Budget{Budget::Kind::tokens, 1024.0}}};
  }

  /// What a worker does of the whole recording: a unit is a layer (analysis/engines.md).
  Json units_of(const TraceInfo& whole, const Json* tried) const {
    const double kv_bytes = 2.0 * static_cast<double>(n_kv_ * d_head_ * n_tokens_) *
                            static_cast<double>(size_of(dtype_));
    Json row = {{"unit", "one layer"},
                {"units", n_layers_},
                {"read_bytes", kv_bytes},
                {"memory", layer_memory(whole, /*n_rows=*/1, goes_by_head(whole, quest(), {}))},
                {"read_seconds", nullptr},
                {"step_seconds", nullptr}};
    if (tried != nullptr) {
      const auto number = [&](const char* key) { return tried->at(key).get<double>(); };
      row["read_seconds"] = kv_bytes * number("read_seconds") / number("read_bytes");
      row["step_seconds"] =
          number("unit_seconds") * static_cast<double>(n_tokens_) / number("unit_tokens");
    }
    return Json::array({std::move(row)});
  }

  Index n_tokens_ = 1 << 20;
  Index n_layers_ = 32;
  Index n_q_ = 32;
  Index n_kv_ = 8;
  Index d_head_ = 128;
  DType dtype_ = DType::bf16;
  Index chunk_ = 1024;
  Index per_part_ = 1;
  fs::path dir_ = ".";
  double limit_ = 1.0;
};

}  // namespace

}  // namespace kvscope::cli

int main(int argc, char** argv) {
  kvscope::cli::BenchTraceSet command;
  return kvscope::cli::run_bench_program(command, argc, argv);
}

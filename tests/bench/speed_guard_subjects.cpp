// What speed_guard measures, but for the window's frame.
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "analysis/sweep/sweep.hpp"
#include "core/attention/dense_attention.hpp"
#include "core/base/data_dir.hpp"
#include "core/base/parallel.hpp"
#include "core/model/tokenizer.hpp"
#include "core/model/transformer.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/score_engine.hpp"
#include "core/tensor/lane_kernels.hpp"
#include "core/trace/memory_trace.hpp"
#include "tests/bench/speed_guard.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/temp_dir.hpp"
#include "traces/first_look.hpp"
#include "traces/hash.hpp"
#include "traces/layout.hpp"
#include "traces/reader.hpp"

namespace kvscope::bench {

namespace {

namespace fs = std::filesystem;

volatile double sink = 0.0;  // what references compute goes here, or they would be left out

double seconds_of(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

Tensor<float> random_tensor(Shape shape, unsigned seed) {
  Tensor<float> out(shape);
  std::minstd_rand rng(seed);
  std::uniform_real_distribution<float> uniform(-1.7F, 1.7F);
  for (float& x : out.flat()) x = uniform(rng);
  return out;
}

/// A chunk or a decode step of 24 query and 8 KV heads of 128 channels.
struct Layer {
  Layer(Index n_ctx, Index n_tok)
      : q(random_tensor({24, n_tok, 128}, 1)),
        k(random_tensor({8, n_ctx, 128}, 2)),
        v(random_tensor({8, n_ctx, 128}, 3)) {}
  Tensor<float> q, k, v;
};

std::function<double()> f32_reference(double n) {
  return [n] { return timed([n] { sink = static_cast<double>(f32_products(n)); }); };
}

/// The method's choice in f32, as in live runs; what it keeps of the keys is there already.
/// The reference reads n_rows of each KV head's keys with n_q queries.
Subject choice(const std::string& method, Phase phase, Index n_ctx, Index n_tok, int n_repeats,
               Index n_q, Index n_rows) {
  struct State {
    State(Index n_keys, Index n_queries) : layer(n_keys, n_queries), alive(8) {
      alive.append(n_keys);
    }
    Layer layer;
    AliveMask alive;
    ScoreEngine engine{ScorePrecision::f32};
    std::unique_ptr<Selector> selector;
    CrossLayerContext context;
    SelectCall call;
  };
  const auto state = std::make_shared<State>(n_ctx, n_tok);
  const float scale = 1.0F / std::sqrt(128.0F);
  state->selector = selector_registry().make(method);
  state->selector->reset({8, 24, 8, 128, n_ctx, scale});
  SelectCall& call = state->call;
  call.layer = 4;
  call.phase = phase;
  call.pos_begin = n_ctx - n_tok;
  call.n_tok = n_tok;
  call.score_scale = scale;
  call.q = state->layer.q.view();
  call.k = state->layer.k.view();
  call.v = state->layer.v.view();
  call.alive = &state->alive;
  call.context = &state->context;
  call.budget = Budget::parse("1024");
  call.engine = &state->engine;
  const auto ours = [state, n_repeats] {
    return timed([&] {
      for (int i = 0; i < n_repeats; ++i)
        if (state->selector->select(state->call).is_dense)
          throw std::logic_error("the choice is everything: there is nothing to measure");
    });
  };
  const auto reference = [state, n_repeats, n_q, n_rows] {
    return timed([&] {
      const Layer& layer = state->layer;
      for (int i = 0; i < n_repeats; ++i)
        for (Index head = 0; head < 8; ++head)
          sink = static_cast<double>(
              row_products(layer.q.data(), n_q, layer.k.sub(head).data(), n_rows, 128));
    });
  };
  return {ours, reference};
}

/// A recording of an 8B model's layers and heads: 72 KB of structure, its numbers are holes.
void lay_out(const fs::path& file) {
  TraceInfo info = make_trace_info(36, 32, 8, 128, 2048, 256);
  info.dtype = DType::bf16;
  info.n_vocab = 151936;
  info.d_model = 32 * 128;
  TraceLayout layout = create_layout(file, info);
  const auto n_calls = static_cast<std::int64_t>(info.calls.size());
  layout.progress->write({0}, {1}, &n_calls);
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

/// One recording in memory for every opening.
class Shared final : public TraceSource {
 public:
  explicit Shared(std::shared_ptr<const MemoryTrace> trace) : trace_(std::move(trace)) {}
  const TraceInfo& info() const override { return trace_->info(); }
  std::string where() const override { return trace_->where(); }
  std::span<const TokenId> tokens() const override { return trace_->tokens(); }
  std::vector<std::string> token_bytes() const override { return trace_->token_bytes(); }
  Tensor<float> read_q(Index layer, Index head, TokenRange range) const override {
    return trace_->read_q(layer, head, range);
  }
  Tensor<float> read_k(Index layer, Index head, TokenRange range) const override {
    return trace_->read_k(layer, head, range);
  }
  Tensor<float> read_v(Index layer, Index head, TokenRange range) const override {
    return trace_->read_v(layer, head, range);
  }
  Tensor<float> read_lse(Index layer, Index head, TokenRange range) const override {
    return trace_->read_lse(layer, head, range);
  }

 private:
  std::shared_ptr<const MemoryTrace> trace_;
};

double seconds_of_children() {
  rusage usage{};
  ::getrusage(RUSAGE_CHILDREN, &usage);
  double sum = 0.0;
  for (const timeval& t : {usage.ru_utime, usage.ru_stime})
    sum += static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  return sum;
}

/// Of this process, of its children that have ended, and of the one that looks at files.
double seconds_with_looker() {
  double sum = processor_seconds() + seconds_of_children();
  clockid_t clock{};
  const pid_t looker = FirstLook::staying_process();
  if (looker > 0 && ::clock_getcpuclockid(looker, &clock) == 0) sum += seconds_of(clock);
  return sum;
}

}  // namespace

double processor_seconds() {
  return seconds_of(CLOCK_PROCESS_CPUTIME_ID);
}

double timed(const std::function<void()>& body) {
  const double begin = processor_seconds();
  body();
  return processor_seconds() - begin;
}

Subject chunk_attention() {
  struct State {
    State()
        : pool(1),
          layer(4096, 128),
          q({128 / kWideLanes, 24 * 128, kWideLanes}),
          out(q.shape()),
          lse({24, 128}) {}
    ThreadPool pool;
    Layer layer;
    Tensor<float> q, out, lse;
  };
  const auto state = std::make_shared<State>();
  state->q = random_tensor(state->q.shape(), 4);
  const auto ours = [state] {
    LaneAttentionCall call;
    call.pos_begin = 4096 - 128;
    call.n_tok = 128;
    call.lanes = kWideLanes;
    call.score_scale = 1.0F / std::sqrt(128.0F);
    call.n_q = 24;
    call.k = state->layer.k.view();
    call.v = state->layer.v.view();
    call.q_lanes = state->q.data();
    call.out_lanes = state->out.data();
    call.lse = state->lse.view();
    return timed([&] { attend_lanes(call, state->pool); });
  };
  return {ours, f32_reference(1e9)};
}

Subject prefill() {
  struct State {
    ThreadPool pool{1};
    Transformer model = Transformer::load(embedded_verifier());
    std::vector<TokenId> tokens;
  };
  const auto state = std::make_shared<State>();
  for (Index i = 0; i < 512; ++i)
    state->tokens.push_back(static_cast<TokenId>(i * 7919 % state->model.config().n_vocab));
  const auto ours = [state] {
    const auto cache = state->model.make_store(512);
    return timed([&] {
      ForwardOptions options;
      options.logits = Logits::last;
      state->model.forward(state->tokens, *cache, state->pool, options);
    });
  };
  return {ours, f32_reference(1e9)};
}

Subject quoka_choice() {
  return choice("quoka", Phase::prefill, /*n_ctx=*/8192, /*n_tok=*/128, /*n_repeats=*/2,
                /*n_q=*/16, /*n_rows=*/8192);
}

Subject quest_choice() {
  // A box has two rows for each page of 16 keys.
  return choice("quest", Phase::decode, /*n_ctx=*/16384, /*n_tok=*/1, /*n_repeats=*/8,
                /*n_q=*/4, /*n_rows=*/2 * 16384 / 16);
}

Subject sweep() {
  struct State {
    testing::TempDir folder;
    ThreadPool pool{1};
    SweepPlan plan;
  };
  test::PlantOptions plant;
  plant.n_layers = 1;
  plant.n_q = 8;
  plant.n_kv = 2;
  plant.d_head = 64;
  plant.n_tokens = 1024;
  plant.chunk = 128;
  plant.sink = plant.band = 1.0;
  const auto trace = std::make_shared<const MemoryTrace>(test::planted_trace(plant));
  SweepOptions options;
  options.selectors = {"quest:dense-layers=0", "quoka", "streamingllm"};
  options.budgets = {Budget::parse("128")};
  options.n_resamples = 20;
  const auto state = std::make_shared<State>();
  const auto open = [trace] { return std::make_unique<Shared>(trace); };
  state->plan = plan_sweep({{"planted", open, {}}}, options);
  const auto ours = [state] {
    return timed([&] {
      Store store(state->folder.path() / "store");
      run_sweep(state->plan, store, state->pool);
      remove_store(store.folder());
    });
  };
  const auto reference = [] { return timed([] { sink = f64_products(2e8); }); };
  return {ours, reference};
}

Subject first_look() {
  const auto folder = std::make_shared<testing::TempDir>();
  const fs::path file = folder->path() / "holes.h5.part";
  lay_out(file);
  const auto open = [file] {
    const TraceFile trace = TraceFile::open(file, {.allow_partial = true});
  };
  open();  // forks the process that stays
  const auto ours = [folder, file, open, is_changed = false]() mutable {
    // Another state of the file: it is looked at again.
    is_changed = !is_changed;
    ::chmod(file.c_str(), is_changed ? 0600 : 0644);
    const double begin = seconds_with_looker();
    open();
    return seconds_with_looker() - begin;
  };
  const auto reference = [folder, file] {
    const double begin = processor_seconds() + seconds_of_children();
    for (int i = 0; i < 16; ++i) {
      const pid_t child = ::fork();
      if (child == 0) ::_exit(0);
      if (child < 0 || ::waitpid(child, nullptr, 0) != child)
        throw std::runtime_error("no process can be forked");
      std::array<char, 4096> header{};
      std::ifstream(file, std::ios::binary).read(header.data(), header.size());
    }
    return processor_seconds() + seconds_of_children() - begin;
  };
  return {ours, reference};
}

}  // namespace kvscope::bench

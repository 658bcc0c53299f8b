// How often vAttention's softmax denominator is off by more than it says, on the rows of a
// recording: decode steps, all layers and heads, many seeds. usage: bench_vattention TRACE [n_steps
// = 5] [n_seeds = 40]; prints a table. See tests/bench/README.md.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/evenly_spaced.hpp"
#include "core/base/parallel.hpp"
#include "core/selectors/method_spec.hpp"
#include "core/trace/source.hpp"
#include "traces/reader.hpp"

namespace kvscope {
namespace {

struct Setting {
  std::string spec;
  double epsilon;
  double delta;
};

struct Exceeded {
  double too_large = 0.0;
  double too_small = 0.0;
  double kept = 0.0;  // keys in lists over keys seen
  double n = 0.0;
};

/// One layer at one position: its tensors as a decode step sees them.
struct Step {
  Tensor<float> q;  // [n_q, 1, d_head]
  Tensor<float> k;  // [n_kv, pos + 1, d_head]
  Tensor<float> v;
};

Step read_step(const TraceSource& trace, Index layer, Index pos) {
  const TraceInfo& info = trace.info();
  Step step{Tensor<float>({info.n_q, 1, info.d_head}),
            Tensor<float>({info.n_kv, pos + 1, info.d_head}),
            Tensor<float>({info.n_kv, pos + 1, info.d_head})};
  const auto copy = [](const Tensor<float>& from, TensorView<float> to) {
    std::copy(from.flat().begin(), from.flat().end(), to.data());
  };
  for (Index h = 0; h < info.n_q; ++h)
    copy(trace.read_q(layer, h, {pos, pos + 1}), step.q.view().sub(h));
  for (Index h = 0; h < info.n_kv; ++h) {
    copy(trace.read_k(layer, h, {0, pos + 1}), step.k.view().sub(h));
    copy(trace.read_v(layer, h, {0, pos + 1}), step.v.view().sub(h));
  }
  return step;
}

void add_step(const TraceInfo& info, const Step& step, Index layer, const Setting& setting,
              Index seed, Exceeded& sum) {
  const auto selector =
      MethodSpec(fmt::format("{}{}seed={}", setting.spec,
                             setting.spec.find(':') == std::string::npos ? ':' : ',', seed))
          .make();
  const Index n_keys = step.k.dim(1);
  selector->reset({info.n_layers, info.n_q, info.n_kv, info.d_head, n_keys, info.score_scale, {}});
  SelectionTrace seen;
  AliveMask alive(info.n_kv);
  alive.append(n_keys);
  SelectCall call;
  call.layer = layer;
  call.phase = Phase::decode;
  call.pos_begin = n_keys - 1;
  call.n_tok = 1;
  call.score_scale = info.score_scale;
  call.q = step.q.view();
  call.k = step.k.view();
  call.v = step.v.view();
  call.alive = &alive;
  call.trace = &seen;
  const Selection answer = selector->select(call);
  for (Index h = 0; h < info.n_q; ++h) {
    const double error = seen.denominator_errors[static_cast<std::size_t>(h)][0];
    sum.too_large += error > setting.epsilon ? 1.0 : 0.0;
    sum.too_small += error < -setting.epsilon ? 1.0 : 0.0;
    sum.kept += static_cast<double>(answer.list(h, 0).size()) / static_cast<double>(n_keys);
    sum.n += 1.0;
  }
}

void run(const std::string& file, Index n_steps, Index n_seeds) {
  const TraceFile trace = TraceFile::open(file);
  const TraceInfo& info = trace.info();
  const std::vector<Index> positions = evenly_spaced(info.n_prompt, info.n_tokens, n_steps);
  if (positions.empty())
    throw ConfigError(
        fmt::format("{}: expected decoded tokens (kvscope record --decode 32)", file));
  std::vector<Setting> settings = {{"vattention-tight", 0.1, 0.05}, {"vattention-loose", 0.4, 0.4}};
  for (const char* sample : {"0.05", "0.01"}) {
    for (const char* tails : {"one", "two"}) {
      settings.push_back(
          {fmt::format("vattention:base-budget=ratio=0.005,base-sample={},epsilon=0.02,"
                       "delta=0.05,tails={}",
                       sample, tails),
           0.02, 0.05});
    }
  }
  struct Task {
    Index layer;
    Index pos;
  };
  std::vector<Task> tasks;
  for (const Index layer : info.layers) {
    for (const Index pos : positions) tasks.push_back({layer, pos});
  }
  std::vector<std::vector<Exceeded>> counts(tasks.size(), std::vector<Exceeded>(settings.size()));
  ThreadPool pool;
  pool.parallel_for(static_cast<Index>(tasks.size()), [&](Index t, int) {
    const Task& task = tasks[static_cast<std::size_t>(t)];
    const Step step = read_step(trace, task.layer, task.pos);
    for (std::size_t s = 0; s < settings.size(); ++s) {
      for (Index seed = 1; seed <= n_seeds; ++seed)
        add_step(info, step, task.layer, settings[s], seed, counts[static_cast<std::size_t>(t)][s]);
    }
  });
  fmt::print("{} rows, {} seeds each\n{:>8} {:>6} {:>9} {:>9} {:>9} {:>7}  method\n",
             static_cast<Index>(tasks.size()) * info.n_q, n_seeds, "epsilon", "delta", "exceeded",
             "too large", "too small", "kept");
  for (std::size_t s = 0; s < settings.size(); ++s) {
    Exceeded all;
    for (const auto& of_task : counts) {
      all.too_large += of_task[s].too_large;
      all.too_small += of_task[s].too_small;
      all.kept += of_task[s].kept;
      all.n += of_task[s].n;
    }
    fmt::print("{:>8} {:>6} {:>8.2f}% {:>8.2f}% {:>8.2f}% {:>6.1f}%  {}\n", settings[s].epsilon,
               settings[s].delta, 100.0 * (all.too_large + all.too_small) / all.n,
               100.0 * all.too_large / all.n, 100.0 * all.too_small / all.n,
               100.0 * all.kept / all.n, settings[s].spec);
  }
}

}  // namespace
}  // namespace kvscope

int main(int argc, char** argv) {
  try {
    if (argc < 2 || argc > 4)
      throw kvscope::ConfigError("usage: bench_vattention TRACE [n_steps] [n_seeds]");
    kvscope::run(argv[1], argc > 2 ? std::stol(argv[2]) : 5, argc > 3 ? std::stol(argv[3]) : 40);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}

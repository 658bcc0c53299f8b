// Speed of the engine's parts on random data: dense attention of a chunk or a decode step, a
// nucleus. usage: bench_engine attention|nucleus [--name value ...]; prints one JSON object. See
// tests/bench/README.md.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/attention/dense_attention.hpp"
#include "core/attention/nucleus.hpp"
#include "core/base/parallel.hpp"
#include "core/tensor/bf16_kernels.hpp"
#include "core/tensor/dtype.hpp"
#include "core/tensor/lane_kernels.hpp"

namespace kvscope {
namespace {

using Options = std::map<std::string, std::string>;

Index number(const Options& options, const std::string& name, Index otherwise) {
  const auto at = options.find(name);
  return at == options.end() ? otherwise : std::stol(at->second);
}

template <class Body>
double least_seconds(Index n_repeats, const Body& body) {
  double best = 1e30;
  for (Index i = 0; i < n_repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    body();
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

double sum_of_squares(const Tensor<float>& tensor) {
  double sum = 0.0;
  for (const float x : tensor.flat()) sum += static_cast<double>(x) * x;
  return sum;
}

void fill(Tensor<float>& tensor, unsigned seed) {
  std::minstd_rand rng(seed);
  std::uniform_real_distribution<float> uniform(-1.7f, 1.7f);
  for (float& x : tensor.flat()) x = uniform(rng);
}

// The last `chunk` tokens of `context` attend to all of them, as a layer of a model does it.
std::string attention(const Options& options) {
  const Index n_q = number(options, "n-q", 24), n_kv = number(options, "n-kv", 8);
  const Index d = number(options, "d-head", 128), n_tok = number(options, "chunk", 128);
  const Index n_ctx = number(options, "context", 32768);
  const Index lanes = n_tok > kNarrowLanes ? kWideLanes : kNarrowLanes;
  const Index n_blocks = (n_tok + lanes - 1) / lanes;
  ThreadPool pool(static_cast<int>(number(options, "threads", 1)));
  Tensor<float> q({n_blocks, n_q * d, lanes}), out({n_blocks, n_q * d, lanes});
  Tensor<float> k({n_kv, n_ctx, d}), v({n_kv, n_ctx, d}), lse({n_q, n_tok});
  fill(q, 1);
  fill(k, 2);
  fill(v, 3);
  LaneAttentionCall call;
  call.pos_begin = n_ctx - n_tok;
  call.n_tok = n_tok;
  call.lanes = lanes;
  call.score_scale = 1.0f / std::sqrt(static_cast<float>(d));
  call.n_q = n_q;
  call.k = k.view();
  call.v = v.view();
  const auto named = options.find("kv");  // f32, or a name of a bf16 kernel
  const Matmul kind = matmul_from_name(named == options.end() ? "f32" : named->second);
  Tensor<std::uint16_t> k_halves, v_halves;
  if (kind != Matmul::f32) {
    k_halves = Tensor<std::uint16_t>({n_kv, n_ctx, d});
    v_halves = Tensor<std::uint16_t>({n_kv, n_ctx, d});
    from_float(k.data(), DType::bf16, k_halves.data(), static_cast<std::size_t>(k.count()));
    from_float(v.data(), DType::bf16, v_halves.data(), static_cast<std::size_t>(v.count()));
    call.halves = {k_halves.view(), v_halves.view(), kind};
  }
  call.q_lanes = q.data();
  call.out_lanes = out.data();
  call.lse = lse.view();
  const double seconds =
      least_seconds(number(options, "repeat", 3), [&] { attend_lanes(call, pool); });
  const double flop = 4.0 * static_cast<double>(n_q * d * n_tok) *
                      (static_cast<double>(n_ctx) - 0.5 * static_cast<double>(n_tok - 1));
  const double bytes =
      2.0 * (kind == Matmul::f32 ? 4.0 : 2.0) * static_cast<double>(n_kv * n_ctx * d);
  return fmt::format(
      R"({{"seconds": {:.6g}, "gflop_per_s": {:.4g}, "gb_per_s": {:.4g}, "check": {:.9g}}})",
      seconds, flop / seconds * 1e-9, bytes / seconds * 1e-9, sum_of_squares(out));
}

// The nucleus of a softmax row against sorting the row and adding up from the largest.
std::string nucleus_of_row(const Options& options) {
  const auto n = static_cast<std::size_t>(number(options, "weights", 8192));
  const double p = 0.01 * static_cast<double>(number(options, "percent", 95));
  std::minstd_rand rng(7);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  std::vector<float> row(n);
  double total = 0.0;
  for (float& x : row) total += x = std::exp(normal(rng));
  for (float& x : row) x = static_cast<float>(x / total);
  const Index n_repeats = number(options, "repeat", 200);
  std::size_t n_kept = 0, n_sorted = 0;
  const double ours =
      least_seconds(n_repeats, [&] { n_kept = nucleus(row, p, NucleusMode::exact).size(); });
  std::vector<std::pair<float, Index>> order(n);
  const double sorted = least_seconds(n_repeats, [&] {
    for (std::size_t i = 0; i < n; ++i) order[i] = {-row[i], static_cast<Index>(i)};
    std::sort(order.begin(), order.end());
    double sum = 0.0;
    for (const auto& weight : row) sum += weight;
    double mass = 0.0;
    for (n_sorted = 0; n_sorted < n && mass < p * sum; ++n_sorted) mass -= order[n_sorted].first;
  });
  return fmt::format(
      R"({{"seconds": {:.6g}, "sort_seconds": {:.6g}, "ratio": {:.4g}, "kept": {}, "kept_by_sort": {}}})",
      ours, sorted, sorted / ours, n_kept, n_sorted);
}

}  // namespace
}  // namespace kvscope

int main(int argc, char** argv) try {
  const std::string what = argc > 1 ? argv[1] : "";
  kvscope::Options options;
  for (int i = 2; i + 1 < argc; i += 2) options[std::string(argv[i]).substr(2)] = argv[i + 1];
  std::string result;
  if (what == "attention") result = kvscope::attention(options);
  if (what == "nucleus") result = kvscope::nucleus_of_row(options);
  if (result.empty()) {
    std::fputs("usage: bench_engine attention|nucleus [--name value ...]\n", stderr);
    return 2;
  }
  std::puts(result.c_str());
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "bench_engine: %s\n", error.what());
  return 1;
}

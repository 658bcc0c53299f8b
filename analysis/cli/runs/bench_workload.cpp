#include "analysis/cli/runs/bench_workload.hpp"

#include <algorithm>
#include <cmath>

#include "core/base/rng.hpp"
#include "core/model/kv_cache.hpp"
#include "core/tensor/dtype.hpp"

namespace kvscope::cli {

namespace {

constexpr Index kRun = 64;           // neighbouring keys of one topic
constexpr Index kTopics = 32;        // so that a query asks for one key in 32
constexpr Index kBlock = 1024;       // tokens that one piece of parallel work fills
constexpr float kTopicShare = 0.5f;  // of a topic or the sink, beside noise of deviation 1

/// Streams of random numbers.
enum Stream : std::uint64_t { kKeys, kValues, kQueries, kDirections, kTopicOfRun, kTopicOfQuery };

/// A bell-shaped number of mean 0 and variance 1 from one random word: the sum of its four 16-bit
/// parts. Tails are short, but it is ten times faster than a true normal number.
float bell(std::uint64_t word) {
  float sum = 0.0f;
  for (int part = 0; part < 4; ++part)
    sum += static_cast<float>((word >> (16 * part)) & 0xFFFF) * (1.0f / 65536.0f);
  return (sum - 2.0f) * 1.7320508f;
}

/// Adds noise to every element of a row; `row` counts rows in the whole stream.
void add_noise(const CounterRng& rng, Index row, std::span<float> out) {
  const auto first = static_cast<std::uint64_t>(row) * out.size();
  for (std::size_t c = 0; c < out.size(); ++c) out[c] += bell(rng.bits(first + c));
}

void add_direction(std::span<const float> direction, std::span<float> out) {
  for (std::size_t c = 0; c < out.size(); ++c) out[c] += kTopicShare * direction[c];
}

}  // namespace

Workload::Workload(const WorkloadShape& shape, ThreadPool& pool)
    : q({shape.n_q, shape.n_queries, shape.d_head}),
      k(make_cache_rows({shape.n_kv, shape.n_tokens, shape.d_head})),
      v(make_cache_rows({shape.n_kv, shape.n_tokens, shape.d_head})) {
  // Per KV head one direction for the sink and one for each topic; group mates share them.
  Tensor<float> directions({shape.n_kv, kTopics + 1, shape.d_head});
  for (Index head = 0; head < shape.n_kv; ++head) {
    const CounterRng rng({shape.seed, kDirections, static_cast<std::uint64_t>(head)});
    for (Index i = 0; i <= kTopics; ++i) add_noise(rng, i, directions.sub(head).row(i));
  }
  const CounterRng topic_of_run({shape.seed, kTopicOfRun});
  const Index n_blocks = (shape.n_tokens + kBlock - 1) / kBlock;
  pool.parallel_for(shape.n_kv * n_blocks, [&](Index index, int) {
    const Index head = index / n_blocks;
    const Index begin = index % n_blocks * kBlock;
    const CounterRng keys({shape.seed, kKeys, static_cast<std::uint64_t>(head)});
    const CounterRng values({shape.seed, kValues, static_cast<std::uint64_t>(head)});
    auto k_head = k.sub(head);
    auto v_head = v.sub(head);
    for (Index t = begin; t < std::min(begin + kBlock, shape.n_tokens); ++t) {
      const auto topic =
          static_cast<Index>(topic_of_run.bits(static_cast<std::uint64_t>(t / kRun)) % kTopics);
      std::ranges::fill(k_head.row(t), 0.0f);
      std::ranges::fill(v_head.row(t), 0.0f);
      add_noise(keys, t, k_head.row(t));
      add_direction(directions.sub(head).row(t == 0 ? kTopics : topic), k_head.row(t));
      add_noise(values, t, v_head.row(t));
    }
  });
  const Index group = shape.n_q / shape.n_kv;
  for (Index head = 0; head < shape.n_q; ++head) {
    const CounterRng noise({shape.seed, kQueries, static_cast<std::uint64_t>(head)});
    const CounterRng topics({shape.seed, kTopicOfQuery, static_cast<std::uint64_t>(head)});
    auto q_head = q.sub(head);
    const auto known = directions.sub(head / group);
    for (Index i = 0; i < shape.n_queries; ++i) {
      add_noise(noise, i, q_head.row(i));
      add_direction(known.row(kTopics), q_head.row(i));
      add_direction(
          known.row(static_cast<Index>(topics.bits(static_cast<std::uint64_t>(i)) % kTopics)),
          q_head.row(i));
    }
  }
}

void Workload::round_to_bf16() {
  const auto round = [](Tensor<float>& rows, Tensor<std::uint16_t>& halves) {
    halves = Tensor<std::uint16_t>::uninitialized(rows.shape());
    const auto n = static_cast<std::size_t>(rows.count());
    from_float(rows.data(), DType::bf16, halves.data(), n);
    to_float(DType::bf16, halves.data(), rows.data(), n);
  };
  round(k, k_halves);
  round(v, v_halves);
}

HalfRows Workload::halves(Index n_tokens) const {
  if (k_halves.count() == 0) return {};
  return {k_halves.view().range(1, 0, n_tokens), v_halves.view().range(1, 0, n_tokens),
          matmul_from_name("bf16")};
}

}  // namespace kvscope::cli

#include "core/model/moe.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/tensor/lane_kernels.hpp"

namespace kvscope {

namespace {

// Lanes of the experts that are computed side by side (one expert may have more): bounds the memory
// of a call.
constexpr Index kMaxBatchTokens = 512;

// A token that one expert gets.
struct RoutedToken {
  Index token;
  float weight;
};

// One expert's share of a batch.
struct ExpertTask {
  Index expert = 0;
  std::vector<RoutedToken> tokens;
  LaneShape shape;
  // Its lanes are slots [first_slot, first_slot + n_blocks * lanes) of a batch.
  Index first_slot = 0;

  Index n_slots() const { return shape.n_blocks * shape.lanes; }
};

// Tokens by expert, ascending; experts without a token are left out.
std::vector<ExpertTask> gather_by_expert(const MoeConfig& moe, const Routing& routing) {
  std::vector<ExpertTask> all(static_cast<std::size_t>(moe.n_experts));
  for (Index t = 0; t < routing.expert.dim(0); ++t) {
    for (Index i = 0; i < moe.n_picked; ++i) {
      auto& task = all[static_cast<std::size_t>(routing.expert(t, i))];
      task.tokens.push_back({t, routing.weight(t, i)});
    }
  }
  std::vector<ExpertTask> used;
  for (std::size_t e = 0; e < all.size(); ++e) {
    if (all[e].tokens.empty()) continue;
    const Index n = static_cast<Index>(all[e].tokens.size());
    const Index lanes = n > kNarrowLanes ? kWideLanes : kNarrowLanes;
    all[e].expert = static_cast<Index>(e);
    all[e].shape = {(n + lanes - 1) / lanes, lanes};
    used.push_back(std::move(all[e]));
  }
  return used;
}

// The activations of a batch of experts, each a run of slots: feature blocks of its tokens.
struct Batch {
  Tensor<float> x;                        // [slots, d_model]
  Tensor<float> gate_up;                  // [slots, 2 * d_ff]
  Tensor<float> hidden;                   // [slots, d_ff]
  Tensor<float> y;                        // [slots, d_model]
  Tensor<float> gate_up_bias, down_bias;  // [experts of the batch, ...] or empty

  // The part of `tensor` that belongs to a task.
  static float* of(Tensor<float>& tensor, const ExpertTask& task) {
    return tensor.data() + task.first_slot * tensor.dim(1);
  }
};

// What stays the same for all batches of a call.
struct Job {
  const MoeConfig& moe;
  const MoeWeights& weights;
  const float* x;
  float* y;
  LaneShape shape;
  ThreadPool& pool;
  Matmul matmul;

  Index d_model() const { return weights.router.n_cols(); }
  // Feature 0 of a token; the next feature is shape.lanes floats on.
  Index offset_of(Index token) const {
    return token / shape.lanes * d_model() * shape.lanes + token % shape.lanes;
  }
};

// Copies the tokens of a task into lane blocks of their own; spare lanes become zero.
void gather(const Job& job, const ExpertTask& task, float* x) {
  const Index d = job.d_model();
  const Index lanes = task.shape.lanes;
  std::fill_n(x, task.n_slots() * d, 0.0f);
  for (std::size_t i = 0; i < task.tokens.size(); ++i) {
    const auto slot = static_cast<Index>(i);
    const float* from = job.x + job.offset_of(task.tokens[i].token);
    float* to = x + slot / lanes * d * lanes + slot % lanes;
    for (Index f = 0; f < d; ++f) to[f * lanes] = from[f * job.shape.lanes];
  }
}

// The biases of the batch's experts, widened; empty if there are none.
Tensor<float> biases_of(const Matrix& stored, std::span<const ExpertTask> tasks) {
  if (stored.n_rows() == 0) return {};
  const Index n = stored.n_cols();
  Tensor<float> out({static_cast<Index>(tasks.size()), n});
  Tensor<float> scratch({n + 16});
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    Index stride = 0;
    const float* row = stored.rows(tasks[i].expert, tasks[i].expert + 1, scratch.data(), stride);
    std::copy_n(row, n, out.data() + static_cast<Index>(i) * n);
  }
  return out;
}

const float* row_or_null(const Tensor<float>& rows, std::size_t i) {
  return rows.count() == 0 ? nullptr : rows.data() + static_cast<Index>(i) * rows.dim(1);
}

// gate and up of all experts of the batch, then the activation into batch.hidden.
void compute_hidden(const Job& job, std::span<const ExpertTask> tasks, Batch& batch) {
  const Index d_ff = job.moe.d_ff;
  std::vector<LinearProduct> products;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const ExpertTask& task = tasks[i];
    const ExpertWeights& w = job.weights.experts[static_cast<std::size_t>(task.expert)];
    const float* x = Batch::of(batch.x, task);
    float* out = Batch::of(batch.gate_up, task);
    if (job.moe.is_clamped) {
      products.push_back({&w.gate_up, row_or_null(batch.gate_up_bias, i), x, out, task.shape});
    } else {  // gates of all blocks, then ups of all blocks
      products.push_back({&w.gate, nullptr, x, out, task.shape});
      products.push_back({&w.up, nullptr, x, out + task.n_slots() * d_ff, task.shape});
    }
  }
  linear(products, job.pool, job.matmul);
  job.pool.parallel_for(static_cast<Index>(tasks.size()), [&](Index index, int) {
    const ExpertTask& task = tasks[static_cast<std::size_t>(index)];
    float* gate_up = Batch::of(batch.gate_up, task);
    float* hidden = Batch::of(batch.hidden, task);
    const Index n = task.n_slots() * d_ff;
    if (job.moe.is_clamped) {
      // Blocks of [2 * d_ff, lanes] lie one after another, as do those of the result.
      lane_clamped_swiglu(gate_up, d_ff * task.shape.n_blocks,
                          static_cast<float>(job.moe.swiglu_alpha),
                          static_cast<float>(job.moe.swiglu_limit), hidden, task.shape.lanes);
    } else {
      lane_swiglu(gate_up, gate_up + n, n);
      std::copy_n(gate_up, n, hidden);
    }
  });
}

void add_outputs(const Job& job, std::span<const ExpertTask> tasks, Batch& batch) {
  const Index d = job.d_model();
  std::vector<LinearProduct> products;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const ExpertTask& task = tasks[i];
    products.push_back({&job.weights.experts[static_cast<std::size_t>(task.expert)].down,
                        row_or_null(batch.down_bias, i), Batch::of(batch.hidden, task),
                        Batch::of(batch.y, task), task.shape});
  }
  linear(products, job.pool, job.matmul);
  // Parallel over features: within one, experts are added in ascending order.
  constexpr Index kFeatures = 64;
  job.pool.parallel_for((d + kFeatures - 1) / kFeatures, [&](Index part, int) {
    const Index begin = part * kFeatures;
    const Index end = std::min(d, begin + kFeatures);
    for (const ExpertTask& task : tasks) {
      const float* from = Batch::of(batch.y, task);
      const Index lanes = task.shape.lanes;
      for (std::size_t i = 0; i < task.tokens.size(); ++i) {
        const auto slot = static_cast<Index>(i);
        const float* values = from + slot / lanes * d * lanes + slot % lanes;
        float* to = job.y + job.offset_of(task.tokens[i].token);
        for (Index f = begin; f < end; ++f) {
          to[f * job.shape.lanes] += task.tokens[i].weight * values[f * lanes];
        }
      }
    }
  });
}

void run_batch(const Job& job, std::span<ExpertTask> tasks) {
  Index n_slots = 0;
  for (ExpertTask& task : tasks) {
    task.first_slot = n_slots;
    n_slots += task.n_slots();
  }
  Batch batch;
  batch.x = Tensor<float>::uninitialized({n_slots, job.d_model()});
  batch.gate_up = Tensor<float>::uninitialized({n_slots, 2 * job.moe.d_ff});
  batch.hidden = Tensor<float>::uninitialized({n_slots, job.moe.d_ff});
  batch.y = Tensor<float>::uninitialized({n_slots, job.d_model()});
  batch.gate_up_bias = biases_of(job.weights.gate_up_bias, tasks);
  batch.down_bias = biases_of(job.weights.down_bias, tasks);
  job.pool.parallel_for(static_cast<Index>(tasks.size()), [&](Index index, int) {
    const ExpertTask& task = tasks[static_cast<std::size_t>(index)];
    gather(job, task, Batch::of(batch.x, task));
  });
  compute_hidden(job, tasks, batch);
  add_outputs(job, tasks, batch);
}

}  // namespace

Routing pick_experts(const MoeConfig& moe, const float* logits, Index n_tok, Index lanes) {
  Routing routing{Tensor<std::int32_t>({n_tok, moe.n_picked}),
                  Tensor<float>({n_tok, moe.n_picked})};
  const auto n_experts = static_cast<std::size_t>(moe.n_experts);
  std::vector<double> share(n_experts);
  std::vector<std::int32_t> order(n_experts);
  for (Index t = 0; t < n_tok; ++t) {
    const float* column = logits + t / lanes * moe.n_experts * lanes + t % lanes;
    for (std::size_t e = 0; e < n_experts; ++e) {
      share[e] = static_cast<double>(column[static_cast<Index>(e) * lanes]);
    }
    std::iota(order.begin(), order.end(), 0);
    const auto before = [&](std::int32_t a, std::int32_t b) {
      const double sa = share[static_cast<std::size_t>(a)];
      const double sb = share[static_cast<std::size_t>(b)];
      return sa != sb ? sa > sb : a < b;
    };
    std::partial_sort(order.begin(), order.begin() + moe.n_picked, order.end(), before);
    const double largest = share[static_cast<std::size_t>(order[0])];
    double sum_of_all = 0.0;
    for (double& s : share) sum_of_all += s = std::exp(s - largest);
    double sum_of_picked = 0.0;
    for (Index i = 0; i < moe.n_picked; ++i) {
      sum_of_picked += share[static_cast<std::size_t>(order[static_cast<std::size_t>(i)])];
    }
    const double sum =
        moe.weights == MoeConfig::Weights::softmax_of_all ? sum_of_all : sum_of_picked;
    for (Index i = 0; i < moe.n_picked; ++i) {
      const std::int32_t e = order[static_cast<std::size_t>(i)];
      routing.expert(t, i) = e;
      routing.weight(t, i) = static_cast<float>(share[static_cast<std::size_t>(e)] / sum);
    }
  }
  return routing;
}

Routing mix_experts(const MoeConfig& moe, const MoeWeights& weights, const float* x, float* y,
                    Index n_tok, LaneShape shape, ThreadPool& pool, Matmul matmul) {
  const Job job{moe, weights, x, y, shape, pool, matmul};
  Tensor<float> logits({shape.n_blocks, moe.n_experts, shape.lanes});
  linear({{&weights.router, &weights.router_bias, logits.data()}}, x, shape, pool, matmul);
  Routing routing = pick_experts(moe, logits.data(), n_tok, shape.lanes);
  std::vector<ExpertTask> tasks = gather_by_expert(moe, routing);
  std::fill_n(y, shape.n_blocks * job.d_model() * shape.lanes, 0.0f);
  std::size_t begin = 0;
  while (begin < tasks.size()) {
    std::size_t end = begin;
    Index n_slots = 0;
    while (end < tasks.size() &&
           (end == begin || n_slots + tasks[end].n_slots() <= kMaxBatchTokens)) {
      n_slots += tasks[end++].n_slots();
    }
    run_batch(job, std::span(tasks).subspan(begin, end - begin));
    begin = end;
  }
  return routing;
}

}  // namespace kvscope

#include "core/attention/dense_attention.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include "core/tensor/attention_kernels.hpp"
#include "core/tensor/row_kernels.hpp"

namespace kvscope {

namespace {

// Lane blocks whose queries and outputs stay in the second-level cache.
constexpr Index kMaxBlocksPerTask = 12;

// One lane of work: a query head and a token of the call.
struct LaneQuery {
  Index q_head;
  Index token;
};

// The lanes of one KV head, cut into lane blocks: `n_items` of them per KV head, the ones that see
// most keys first.
class LaneItems {
 public:
  LaneItems(const LaneAttentionCall& call, Index group)
      : n_tok_(call.n_tok),
        lanes_(call.lanes),
        group_(group),
        n_blocks_((call.n_tok + call.lanes - 1) / call.lanes),
        // Few tokens: the heads of a group share a block, so that its lanes are filled. Many: one
        // head per block.
        heads_share_(call.n_tok * group <= call.lanes) {}

  Index per_kv_head() const { return heads_share_ ? 1 : group_ * n_blocks_; }

  // The queries of an item in order of lanes; returns how many lanes it fills.
  Index queries(Index kv_head, Index item, LaneQuery* query) const {
    Index n_used = 0;
    if (heads_share_) {
      for (Index g = 0; g < group_; ++g) {
        for (Index t = 0; t < n_tok_; ++t) query[n_used++] = {kv_head * group_ + g, t};
      }
    } else {
      const Index block = n_blocks_ - 1 - item / group_;
      const Index end = std::min(n_tok_, (block + 1) * lanes_);
      for (Index t = block * lanes_; t < end; ++t) {
        query[n_used++] = {kv_head * group_ + item % group_, t};
      }
    }
    return n_used;
  }

 private:
  Index n_tok_, lanes_, group_, n_blocks_;
  bool heads_share_;
};

// Lane blocks per task such that the threads finish together. A task also reads and packs its keys
// and values, which costs about as much as one block.
Index choose_blocks_per_task(Index n_kv, Index items_per_kv_head, int n_threads) {
  Index best = 1;
  Index best_cost = std::numeric_limits<Index>::max();
  for (Index n = 1; n <= std::min(kMaxBlocksPerTask, items_per_kv_head); ++n) {
    const Index n_tasks = n_kv * ((items_per_kv_head + n - 1) / n);
    const Index cost = (n_tasks + n_threads - 1) / n_threads * (n + 1);
    if (cost <= best_cost) {
      best = n;
      best_cost = cost;
    }
  }
  return best;
}

// The memory of one lane block on its way through the kernel.
struct LaneMemory {
  float lse[kWideLanes];
  float sink_logits[kWideLanes];
  std::int32_t pos[kWideLanes];
  LaneQuery query[kWideLanes];
  Index n_used = 0;
};

struct WorkerMemory {
  std::vector<LaneMemory> blocks;
  std::vector<LaneAttention> tasks;
  Tensor<float> floats;  // shared scratch, then q, out and state of every block
};

// Fills `memory`, q and the kernel's task for one lane block. floats: [2 * d_head + 3, lanes].
LaneAttention prepare(const LaneAttentionCall& call, const LaneItems& items, Index kv_head,
                      Index item, LaneMemory& memory, float* floats) {
  const Index d = call.d_head();
  const Index lanes = call.lanes;
  float* q = floats;
  memory.n_used = items.queries(kv_head, item, memory.query);
  for (Index lane = 0; lane < lanes; ++lane) {
    const LaneQuery& query = memory.query[std::min(lane, memory.n_used - 1)];
    memory.pos[lane] = static_cast<std::int32_t>(call.pos_begin + query.token);
    memory.sink_logits[lane] =
        call.sink_logits.empty() ? 0.0f : call.sink_logits[static_cast<std::size_t>(query.q_head)];
    const float scale = lane < memory.n_used ? call.score_scale : 0.0f;
    const float* src = call.q_lanes + (query.token / lanes) * call.n_q * d * lanes +
                       query.q_head * d * lanes + query.token % lanes;
    for (Index f = 0; f < d; ++f) q[f * lanes + lane] = scale * src[f * lanes];
  }
  LaneAttention task;
  task.q = q;
  task.pos = memory.pos;
  task.lanes = lanes;
  if (call.halves) {
    task.k16 = call.halves.k.sub(kv_head).data();
    task.v16 = call.halves.v.sub(kv_head).data();
  } else {
    task.k = call.k.sub(kv_head).data();
    task.v = call.v.sub(kv_head).data();
  }
  task.d_head = d;
  const auto [first, last] = std::minmax_element(memory.pos, memory.pos + lanes);
  task.key_end = *last + 1;
  if (call.window) {
    task.window = *call.window;
    task.key_begin = std::max<Index>(0, *first - *call.window + 1) / kKeyBlock * kKeyBlock;
  }
  if (!call.sink_logits.empty()) task.sink_logits = memory.sink_logits;
  task.cap = call.score_cap;
  task.out = q + d * lanes;
  task.scratch = task.out + d * lanes;
  task.lse = memory.lse;
  return task;
}

void write_results(const LaneAttentionCall& call, const LaneMemory& memory, const float* out) {
  const Index d = call.d_head();
  const Index lanes = call.lanes;
  for (Index lane = 0; lane < memory.n_used; ++lane) {
    const LaneQuery& query = memory.query[lane];
    call.lse(query.q_head, query.token) = memory.lse[lane];
    float* dst = call.out_lanes + (query.token / lanes) * call.n_q * d * lanes +
                 query.q_head * d * lanes + query.token % lanes;
    for (Index f = 0; f < d; ++f) dst[f * lanes] = out[f * lanes + lane];
  }
}

// The few queries of decode, as rows: each task is one KV head and one span of keys, so that
// threads share a long context.
void attend_rows(const LaneAttentionCall& call, ThreadPool& pool) {
  const Index d = call.d_head();
  const Index lanes = call.lanes;
  const Index n_kv = call.n_kv();
  const Index group = call.n_q / n_kv;
  const Index n_rows = group * call.n_tok;  // per KV head: head g's token t is row g * n_tok + t
  const auto at = [&](Index q_head, Index token) {
    return (token / lanes) * call.n_q * d * lanes + q_head * d * lanes + token % lanes;
  };
  auto q = Tensor<float>::uninitialized({call.n_q, call.n_tok, d});
  std::int32_t pos[kMaxRowTokens];
  for (Index h = 0; h < call.n_q; ++h) {
    for (Index t = 0; t < call.n_tok; ++t) {
      const float* src = call.q_lanes + at(h, t);
      for (Index f = 0; f < d; ++f) q(h, t, f) = call.score_scale * src[f * lanes];
      if (h < group) pos[h * call.n_tok + t] = static_cast<std::int32_t>(call.pos_begin + t);
    }
  }
  const Index key_end = call.pos_begin + call.n_tok;
  const Index window = call.window.value_or(0);
  const Index first_key = window > 0 ? std::max<Index>(0, call.pos_begin - window + 1) : 0;
  const Index first_span = first_key / kKeySpan;
  const Index n_spans = (key_end + kKeySpan - 1) / kKeySpan - first_span;
  auto parts = Tensor<float>::uninitialized({n_kv, n_spans, n_rows, d + 2});
  pool.parallel_for(n_kv * n_spans, [&](Index index, int) {
    const Index kv_head = index / n_spans;
    const Index span = first_span + index % n_spans;
    RowAttention task;
    task.q = &q(kv_head * group, Index{0}, Index{0});
    task.pos = pos;
    task.n_rows = n_rows;
    task.k = call.k.sub(kv_head).data();
    task.v = call.v.sub(kv_head).data();
    task.d_head = d;
    task.key_begin = std::max(first_key / kKeyBlock * kKeyBlock, span * kKeySpan);
    task.key_end = std::min(key_end, (span + 1) * kKeySpan);
    task.window = window;
    task.cap = call.score_cap;
    task.part = &parts(kv_head, span - first_span, Index{0}, Index{0});
    row_attention(task);
  });
  std::vector<float> out(static_cast<std::size_t>(d));
  for (Index h = 0; h < call.n_q; ++h) {
    for (Index t = 0; t < call.n_tok; ++t) {
      const float* sink_logit =
          call.sink_logits.empty() ? nullptr : &call.sink_logits[static_cast<std::size_t>(h)];
      const Index row = h % group * call.n_tok + t;
      call.lse(h, t) = join_row_parts(&parts(h / group, Index{0}, row, Index{0}), n_spans,
                                      n_rows * (d + 2), d, sink_logit, out.data());
      float* dst = call.out_lanes + at(h, t);
      for (Index f = 0; f < d; ++f) dst[f * lanes] = out[static_cast<std::size_t>(f)];
    }
  }
}

// Few queries of bf16 keys, one block of lanes per KV head: its spans are parts, so that threads
// share a long context.
void attend_spans(const LaneAttentionCall& call, const LaneItems& items, ThreadPool& pool) {
  const Index d = call.d_head();
  const Index lanes = call.lanes;
  const Index n_kv = call.n_kv();
  const Index block_floats = (2 * d + 3) * lanes;
  const Index part_floats = (d + 2) * lanes;
  const Index first_key = call.window ? std::max<Index>(0, call.pos_begin - *call.window + 1) : 0;
  const Index first_span = first_key / kKeySpan;
  const Index n_spans = (call.pos_begin + call.n_tok + kKeySpan - 1) / kKeySpan - first_span;
  auto parts = Tensor<float>::uninitialized({n_kv, n_spans, part_floats});
  std::vector<Tensor<float>> memory(static_cast<std::size_t>(pool.n_threads()));
  for (auto& floats : memory) {
    floats = Tensor<float>::uninitialized({lane_attention_scratch(d) + block_floats});
  }
  pool.parallel_for(n_kv * n_spans, [&](Index index, int worker) {
    float* scratch = memory[static_cast<std::size_t>(worker)].data();
    LaneMemory lane_memory;
    LaneAttention task = prepare(call, items, index / n_spans, /*item=*/0, lane_memory,
                                 scratch + lane_attention_scratch(d));
    const Index span = first_span + index % n_spans;
    task.key_begin = std::max(task.key_begin, span * kKeySpan);
    task.key_end = std::min(task.key_end, (span + 1) * kKeySpan);
    task.sink_logits = nullptr;  // they join at the end
    task.part = parts.sub(index / n_spans).row(index % n_spans).data();
    lane_attention({&task, 1}, scratch, call.halves.matmul);
  });
  pool.parallel_for(n_kv, [&](Index kv_head, int worker) {
    LaneMemory lane_memory;
    const LaneAttention task =
        prepare(call, items, kv_head, /*item=*/0, lane_memory,
                memory[static_cast<std::size_t>(worker)].data() + lane_attention_scratch(d));
    lane_attention_join(parts.sub(kv_head).data(), n_spans, part_floats, d, lanes, task.sink_logits,
                        task.out, task.lse);
    write_results(call, lane_memory, task.out);
  });
}

}  // namespace

void attend_lanes(const LaneAttentionCall& call, ThreadPool& pool) {
  if (!call.halves && call.n_tok * (call.n_q / call.n_kv()) <= kMaxRowTokens) {
    attend_rows(call, pool);
    return;
  }
  const Index d = call.d_head();
  const Index n_kv = call.n_kv();
  const LaneItems items(call, call.n_q / n_kv);
  const Index n_items = items.per_kv_head();
  if (call.halves && n_items == 1) {
    attend_spans(call, items, pool);
    return;
  }
  const Index per_task = choose_blocks_per_task(n_kv, n_items, pool.n_threads());
  const Index tasks_per_kv_head = (n_items + per_task - 1) / per_task;
  const Index block_floats = (2 * d + 3) * call.lanes;
  const Index shared_floats = lane_attention_scratch(d);
  std::vector<WorkerMemory> workers(static_cast<std::size_t>(pool.n_threads()));

  // Tasks of late tokens see the most keys: they go first, so that no thread is left with a long
  // one at the end.
  pool.parallel_for(tasks_per_kv_head * n_kv, [&](Index index, int worker) {
    WorkerMemory& memory = workers[static_cast<std::size_t>(worker)];
    if (memory.blocks.empty()) {
      memory.blocks.resize(static_cast<std::size_t>(per_task));
      memory.floats = Tensor<float>::uninitialized({shared_floats + per_task * block_floats});
    }
    const Index kv_head = index % n_kv;
    const Index begin = index / n_kv * per_task;
    const Index end = std::min(n_items, begin + per_task);
    memory.tasks.clear();
    for (Index item = begin; item < end; ++item) {
      memory.tasks.push_back(
          prepare(call, items, kv_head, item, memory.blocks[static_cast<std::size_t>(item - begin)],
                  memory.floats.data() + shared_floats + (item - begin) * block_floats));
    }
    lane_attention(memory.tasks, memory.floats.data(), call.halves.matmul);
    for (std::size_t i = 0; i < memory.tasks.size(); ++i) {
      write_results(call, memory.blocks[i], memory.tasks[i].out);
    }
  });
}

void attend_dense(const AttentionQuestion& question, const AttentionRows& answer, ThreadPool& pool,
                  const HalfRows& halves) {
  const Index n_q = question.q.dim(0);
  const Index d = question.q.dim(2);
  const Index lanes = question.n_tok > kNarrowLanes ? kWideLanes : kNarrowLanes;
  const Index n_blocks = (question.n_tok + lanes - 1) / lanes;
  auto q_lanes = Tensor<float>::uninitialized({n_blocks, n_q * d, lanes});
  Tensor<float> out_lanes({n_blocks, n_q * d, lanes});
  const auto for_each_block = [&](auto&& body) {
    for (Index block = 0; block < n_blocks; ++block) {
      const Index first = block * lanes;
      const Index n = std::min(lanes, question.n_tok - first);
      for (Index h = 0; h < n_q; ++h) body(block, first, n, h);
    }
  };
  for_each_block([&](Index block, Index first, Index n, Index h) {
    lanes_from_rows(&question.q(h, first, Index{0}), question.q.stride(1), d, lanes, n, 1.0f,
                    q_lanes.sub(block).data() + h * d * lanes);
  });
  LaneAttentionCall lane_call{question};
  lane_call.lanes = lanes;
  lane_call.n_q = n_q;
  lane_call.halves = halves;
  lane_call.q_lanes = q_lanes.data();
  lane_call.out_lanes = out_lanes.data();
  lane_call.lse = answer.lse;
  attend_lanes(lane_call, pool);
  for_each_block([&](Index block, Index first, Index n, Index h) {
    rows_from_lanes(out_lanes.sub(block).data() + h * d * lanes, d, lanes, n,
                    &answer.out(h, first, Index{0}), answer.out.stride(1));
  });
}

}  // namespace kvscope

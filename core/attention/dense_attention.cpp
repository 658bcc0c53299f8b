#include "core/attention/dense_attention.hpp"

#include <algorithm>
#include <vector>

#include "core/tensor/lane_kernels.hpp"

namespace kvscope {

namespace {

// One lane of work: a query head and a token of the call.
struct LaneQuery {
  Index q_head;
  Index token;
};

}  // namespace

void attend_lanes(const LaneAttentionCall& call, ThreadPool& pool) {
  const Index d = call.k.dim(2);
  const Index n_kv = call.k.dim(0);
  const Index group = call.n_q / n_kv;
  const Index lanes = call.lanes;
  const Index n_blocks = (call.n_tok + lanes - 1) / lanes;

  // Few tokens: the heads of a group share a block, so that decode fills its lanes. Many: one head per block.
  const bool heads_share = call.n_tok * group <= lanes;
  const Index n_tasks = heads_share ? n_kv : call.n_q * n_blocks;
  const std::size_t scratch_size = static_cast<std::size_t>((kKeyBlock + 3 + 2 * d) * lanes);
  std::vector<Tensor<float>> scratch(static_cast<std::size_t>(pool.n_threads()));

  pool.parallel_for(n_tasks, [&](Index index, int worker) {
    auto& memory = scratch[static_cast<std::size_t>(worker)];
    if (memory.count() == 0) memory = Tensor<float>::uninitialized({static_cast<Index>(scratch_size)});
    float* q = memory.data();
    float* out = q + d * lanes;
    float lse[kWideLanes];
    float sinks[kWideLanes];
    std::int32_t pos[kWideLanes];
    LaneQuery query[kWideLanes];
    Index n_used = 0;
    Index kv_head = 0;
    if (heads_share) {
      kv_head = index;
      for (Index g = 0; g < group; ++g) {
        for (Index t = 0; t < call.n_tok; ++t) query[n_used++] = {kv_head * group + g, t};
      }
    } else {
      // Late blocks see the most keys: they go first, so that no thread is left with a long one at the end.
      const Index block = n_blocks - 1 - index / call.n_q;
      const Index q_head = index % call.n_q;
      kv_head = q_head / group;
      const Index end = std::min(call.n_tok, (block + 1) * lanes);
      for (Index t = block * lanes; t < end; ++t) query[n_used++] = {q_head, t};
    }
    for (Index lane = 0; lane < lanes; ++lane) {
      const LaneQuery& item = query[std::min(lane, n_used - 1)];
      pos[lane] = static_cast<std::int32_t>(call.pos_begin + item.token);
      sinks[lane] = call.sinks.empty() ? 0.0f : call.sinks[static_cast<std::size_t>(item.q_head)];
      const float scale = lane < n_used ? call.score_scale : 0.0f;
      const float* src = call.q_lanes + (item.token / lanes) * call.n_q * d * lanes +
                         item.q_head * d * lanes + item.token % lanes;
      for (Index f = 0; f < d; ++f) q[f * lanes + lane] = scale * src[f * lanes];
    }

    LaneAttention task;
    task.q = q;
    task.pos = pos;
    task.lanes = lanes;
    task.k = call.k.sub(kv_head).data();
    task.v = call.v.sub(kv_head).data();
    task.d_head = d;
    const auto [first, last] = std::minmax_element(pos, pos + lanes);
    task.key_end = *last + 1;
    if (call.window) {
      task.window = *call.window;
      task.key_begin = std::max<Index>(0, *first - *call.window + 1) / kKeyBlock * kKeyBlock;
    }
    if (!call.sinks.empty()) task.sinks = sinks;
    task.out = out;
    task.lse = lse;
    task.scratch = out + d * lanes;
    lane_attention(task);

    for (Index lane = 0; lane < n_used; ++lane) {
      const LaneQuery& item = query[lane];
      call.lse(item.q_head, item.token) = lse[lane];
      float* dst = call.out_lanes + (item.token / lanes) * call.n_q * d * lanes +
                   item.q_head * d * lanes + item.token % lanes;
      for (Index f = 0; f < d; ++f) dst[f * lanes] = out[f * lanes + lane];
    }
  });
}

void attend_dense(const AttentionQuestion& question, const AttentionRows& answer, ThreadPool& pool) {
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
  LaneAttentionCall lane_call;
  lane_call.pos_begin = question.pos_begin;
  lane_call.n_tok = question.n_tok;
  lane_call.lanes = lanes;
  lane_call.score_scale = question.score_scale;
  lane_call.window = question.window;
  lane_call.n_q = n_q;
  lane_call.sinks = question.sinks;
  lane_call.k = question.k;
  lane_call.v = question.v;
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

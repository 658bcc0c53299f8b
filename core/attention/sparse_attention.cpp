#include "core/attention/sparse_attention.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include "core/attention/dense_attention.hpp"
#include "core/tensor/attention_kernels.hpp"

namespace kvscope {

namespace {

constexpr Index kQueriesPerTask = 8 * kWideLanes;  // that share one gathering of a list

/// One list as one KV head uses it, and a part of its queries.
struct Task {
  ListView list;
  Index kv_head = 0;
  Index first_head = 0;  // query heads that share the list and the KV head
  Index n_heads = 0;
  Index first_row = 0;
  Index n_rows = 0;
};

/// A worker's memory, grown as needed.
struct Scratch {
  std::span<const KeyPos> keys;  // of the gathered list, ascending
  Index n_summaries = 0;         // rows before those of the keys
  /// d_head, and one channel more where scores have an addend: it is a key's last channel, times 1 in every query.
  Index width = 0;
  Tensor<float> k, v;   // [capacity, width] summaries, then keys
  Tensor<float> lanes;  // queries, outputs and the kernel's own
};

std::vector<Task> plan_tasks(const AttentionQuestion& call, const Selection& selection) {
  const Index n_q = call.q.dim(0);
  const Index n_kv = call.k.dim(0);
  const Index group = n_q / n_kv;
  const Index n_heads = selection.owner == ListOwner::q_head ? 1 : group;
  std::vector<Task> tasks;
  for (Index block = 0; block < selection.n_row_blocks(); ++block) {
    const Index begin = block * selection.rows_per_list;
    const Index end = std::min(call.n_tok, begin + selection.rows_per_list);
    const Index rows_per_task = std::max<Index>(1, kQueriesPerTask / n_heads);
    for (Index first_head = 0; first_head < n_q; first_head += n_heads) {
      const ListView list = selection.list(owner_of(selection.owner, first_head, group), begin);
      for (Index row = begin; row < end; row += rows_per_task) {
        tasks.push_back({list, first_head / group, first_head, n_heads, row,
                         std::min(rows_per_task, end - row)});
      }
    }
  }
  return tasks;
}

/// Copies rows of the cache that lie at ascending positions, runs of neighbours at once.
void copy_rows(TensorView<const float> rows, std::span<const KeyPos> keys, float* out, Index width) {
  const Index d = rows.dim(1);
  const auto n_keys = static_cast<Index>(keys.size());
  for (Index first = 0; first < n_keys;) {
    Index last = first + 1;
    const KeyPos begin = keys[static_cast<std::size_t>(first)];
    while (last < n_keys && keys[static_cast<std::size_t>(last)] == begin + (last - first)) ++last;
    if (width == d) {
      std::copy_n(rows.row(begin).data(), (last - first) * d, out + first * d);
    } else {
      for (Index i = first; i < last; ++i) std::copy_n(rows.row(begin + i - first).data(), d, out + i * width);
    }
    first = last;
  }
}

/// The summaries and the part of the list that the task's last query sees, with their keys and values in a row.
void gather(const AttentionQuestion& call, const Summaries& summaries, const Task& task, Scratch& scratch) {
  const auto last_pos = static_cast<KeyPos>(call.pos_begin + task.first_row + task.n_rows - 1);
  const auto end = std::upper_bound(task.list.keys.begin(), task.list.keys.end(), last_pos);
  scratch.keys = task.list.keys.first(static_cast<std::size_t>(end - task.list.keys.begin()));
  scratch.n_summaries = summaries.has_stated_share() ? 0 : summaries.count(task.kv_head);
  const Index d = call.k.dim(2);
  const bool has_addends = scratch.n_summaries > 0 || !task.list.log_weight.empty();
  scratch.width = has_addends ? d + 1 : d;
  const Index n = scratch.n_summaries + static_cast<Index>(scratch.keys.size());
  if (scratch.k.count() < n * scratch.width) {
    const Shape shape{n + n / 4 + kKeyBlock, scratch.width};
    scratch.k = Tensor<float>::uninitialized(shape);
    scratch.v = Tensor<float>::uninitialized(shape);
  }
  const Index after_summaries = scratch.n_summaries * scratch.width;
  copy_rows(call.k.sub(task.kv_head), scratch.keys, scratch.k.data() + after_summaries, scratch.width);
  copy_rows(call.v.sub(task.kv_head), scratch.keys, scratch.v.data() + after_summaries, scratch.width);
  if (!has_addends) return;
  const auto set_addend = [&](Index row, float addend) {
    scratch.k.data()[row * scratch.width + d] = addend;
    scratch.v.data()[row * scratch.width + d] = 0.0f;
  };
  for (Index i = 0; i < scratch.n_summaries; ++i) {
    const Index from = summaries.begin_of(task.kv_head) + i;
    std::copy_n(summaries.k.view().row(from).data(), d, scratch.k.data() + i * scratch.width);
    std::copy_n(summaries.v.view().row(from).data(), d, scratch.v.data() + i * scratch.width);
    set_addend(i, summaries.log_count[static_cast<std::size_t>(from)]);
  }
  for (std::size_t i = 0; i < scratch.keys.size(); ++i) {
    set_addend(scratch.n_summaries + static_cast<Index>(i),
               task.list.log_weight.empty() ? 0.0f : task.list.log_weight[i]);
  }
}

/// One query's result, from the lanes of its task (out: channel 0 of its lane) to those of the
/// call. lse is -infinity for a query without keys.
struct QueryResult {
  Index q_head = 0;
  Index row = 0;
  const float* out = nullptr;
  Index lanes = 0;
  float lse = 0.0f;
};

void write_result(const Selection& selection, const QueryResult& result, Index n_q, Index d,
                  const AttentionLanes& answer) {
  const auto [q_head, row, out, lanes, lse] = result;
  const bool has_keys = lse != -std::numeric_limits<float>::infinity();
  const Index step = answer.lanes;
  float* dst = answer.out + (row / step * n_q + q_head) * d * step + row % step;
  for (Index f = 0; f < d; ++f) dst[f * step] = has_keys ? out[f * lanes] : 0.0f;
  answer.lse(q_head, row) = lse;
  const Summaries& summaries = selection.summaries;
  if (!summaries.has_stated_share()) return;
  const Index n_kv = static_cast<Index>(summaries.begin.size()) - 1;
  const float weight = summaries.list_share(q_head, row);
  const auto rest = summaries.v.view().row(summaries.begin_of(q_head / (n_q / n_kv)));
  for (Index f = 0; f < d; ++f) {
    dst[f * step] = weight * dst[f * step] + (1.0f - weight) * rest[static_cast<std::size_t>(f)];
  }
}

/// Queries [first, first + n_used) of the task (heads vary fastest) side by side in lanes.
void attend_block(const AttentionQuestion& call, const Selection& selection, const Task& task,
                  Index first, Index n_used, Index lanes, Scratch& scratch,
                  const AttentionLanes& answer) {
  const Index d = call.q.dim(2);
  const Index width = scratch.width;
  const Index needed = (kKeyBlock + 3 + 2 * width) * lanes;
  if (scratch.lanes.count() < needed) scratch.lanes = Tensor<float>::uninitialized({needed});
  float* q = scratch.lanes.data();
  float* out = q + width * lanes;
  float lse[kWideLanes];
  float sinks[kWideLanes];
  std::int32_t last_slot[kWideLanes];  // the causal mask in the list's own numbering
  const auto head_of = [&](Index lane) {
    return task.first_head + (first + std::min(lane, n_used - 1)) % task.n_heads;
  };
  const auto row_of = [&](Index lane) {
    return task.first_row + (first + std::min(lane, n_used - 1)) / task.n_heads;
  };
  for (Index lane = 0; lane < lanes; ++lane) {
    const auto pos = static_cast<KeyPos>(call.pos_begin + row_of(lane));
    const auto n_seen =
        std::upper_bound(scratch.keys.begin(), scratch.keys.end(), pos) - scratch.keys.begin();
    last_slot[lane] = static_cast<std::int32_t>(scratch.n_summaries + n_seen) - 1;
    sinks[lane] = call.sinks.empty() ? 0.0f : call.sinks[static_cast<std::size_t>(head_of(lane))];
    const float scale = lane < n_used ? call.score_scale : 0.0f;
    const float* src = &call.q(head_of(lane), row_of(lane), Index{0});
    for (Index f = 0; f < d; ++f) q[f * lanes + lane] = scale * src[f];
    if (width > d) q[d * lanes + lane] = lane < n_used ? 1.0f : 0.0f;
  }
  LaneAttention kernel;
  kernel.q = q;
  kernel.pos = last_slot;
  kernel.lanes = lanes;
  kernel.k = scratch.k.data();
  kernel.v = scratch.v.data();
  kernel.d_head = width;
  kernel.key_end = *std::max_element(last_slot, last_slot + lanes) + 1;
  if (!call.sinks.empty()) kernel.sinks = sinks;
  kernel.out = out;
  kernel.lse = lse;
  kernel.scratch = out + width * lanes;
  if (kernel.key_end > 0) lane_attention(kernel);
  for (Index lane = 0; lane < n_used; ++lane) {
    const float own_lse =
        last_slot[lane] >= 0 ? lse[lane] : -std::numeric_limits<float>::infinity();
    write_result(selection, {head_of(lane), row_of(lane), out + lane, lanes, own_lse},
                 call.q.dim(0), d, answer);
  }
}

}  // namespace

void attend_lists(const AttentionQuestion& call, const Selection& selection,
                  const AttentionLanes& answer, ThreadPool& pool) {
  const std::vector<Task> tasks = plan_tasks(call, selection);
  std::vector<Scratch> scratch(static_cast<std::size_t>(pool.n_threads()));
  pool.parallel_for(static_cast<Index>(tasks.size()), [&](Index index, int worker) {
    const Task& task = tasks[static_cast<std::size_t>(index)];
    Scratch& memory = scratch[static_cast<std::size_t>(worker)];
    gather(call, selection.summaries, task, memory);
    const Index n_queries = task.n_rows * task.n_heads;
    const Index lanes = n_queries > kNarrowLanes ? kWideLanes : kNarrowLanes;
    for (Index first = 0; first < n_queries; first += lanes) {
      attend_block(call, selection, task, first, std::min(lanes, n_queries - first), lanes, memory,
                   answer);
    }
  });
}

}  // namespace kvscope

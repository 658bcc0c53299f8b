#include "core/attention/sparse_attention.hpp"

#include <algorithm>
#include <limits>

#include "core/attention/dense_attention.hpp"
#include "core/tensor/attention_kernels.hpp"
#include "core/tensor/dtype.hpp"
#include "core/tensor/row_kernels.hpp"

namespace kvscope {

namespace list_attention {

constexpr Index kQueriesPerTask = 8 * kWideLanes;  // that share one gathering of a list, at most

/// One list as one KV head uses it, and a part of its queries.
struct Task {
  ListView list;
  Index kv_head = 0;
  Index first_head = 0;  // query heads that share the list and the KV head
  Index n_heads = 0;
  Index first_row = 0;
  Index n_rows = 0;
  Index group = 0;  // counts (list, KV head): tasks of a group have its queries and one list
};

/// A list's keys and values side by side: summaries first, then keys, as far as somebody sees them.
struct ListRows {
  Tensor<float> k, v;  // [capacity, width]
  // [capacity, d_head] in place of these: keys of a cache in bf16, without addends.
  Tensor<std::uint16_t> k16, v16;

  void reserve(Index n, Index width, bool as_halves) {
    if ((as_halves ? k16.count() : k.count()) >= n * width) return;
    const Shape shape{n + n / 4 + kKeyBlock, width};
    if (as_halves) {
      k16 = Tensor<std::uint16_t>::uninitialized(shape);
      v16 = Tensor<std::uint16_t>::uninitialized(shape);
    } else {
      k = Tensor<float>::uninitialized(shape);
      v = Tensor<float>::uninitialized(shape);
    }
  }
};

/// What belongs to the queries of one block of lanes.
struct QueryBlock {
  float lse[kWideLanes];
  float sink_logits[kWideLanes];
  std::int32_t last_slot[kWideLanes];  // the causal mask in the list's own numbering
};

/// A worker's memory, grown as needed.
struct Scratch {
  std::span<const KeyPos> keys;  // of the gathered list, ascending
  Index n_summaries = 0;         // rows before those of the keys
  /// d_head, and one channel more where scores have an addend: it is a key's last channel, times 1
  /// in every query.
  Index width = 0;
  Index n_rows() const { return n_summaries + static_cast<Index>(keys.size()); }
  ListRows rows;        // of a list that one task gathers for itself
  Tensor<float> lanes;  // the kernel's own, queries and outputs
  std::vector<QueryBlock> blocks;
  std::vector<LaneAttention> kernels;
};

}  // namespace list_attention

struct ListMemory::Impl {
  std::vector<list_attention::Scratch> workers;
  std::vector<list_attention::ListRows> shared;  // rows of lists that several tasks use
};
ListMemory::ListMemory() : impl_(std::make_unique<Impl>()) {}
ListMemory::~ListMemory() = default;
ListMemory::ListMemory(ListMemory&&) noexcept = default;
ListMemory& ListMemory::operator=(ListMemory&&) noexcept = default;

namespace {

using namespace list_attention;

/// Queries that share one gathering: fewer where there are too few lists to keep all threads busy.
Index queries_per_task(const AttentionQuestion& call, Index n_threads) {
  const Index n_queries = call.q.dim(0) * call.n_tok;
  const Index share = n_queries / (2 * n_threads) / kWideLanes * kWideLanes;
  return std::clamp(share, kWideLanes, kQueriesPerTask);
}

std::vector<Task> plan_tasks(const AttentionQuestion& call, const Selection& selection,
                             Index n_threads) {
  const Index n_q = call.q.dim(0);
  const Index n_kv = call.k.dim(0);
  const Index group = n_q / n_kv;
  const Index n_heads = selection.owner == ListOwner::q_head ? 1 : group;
  std::vector<Task> tasks;
  Index n_groups = 0;
  for (Index block = 0; block < selection.n_row_blocks(); ++block) {
    const Index begin = block * selection.rows_per_list;
    const Index end = std::min(call.n_tok, begin + selection.rows_per_list);
    const Index rows_per_task = std::max<Index>(1, queries_per_task(call, n_threads) / n_heads);
    for (Index first_head = 0; first_head < n_q; first_head += n_heads) {
      const ListView list = selection.list(owner_of(selection.owner, first_head, group), begin);
      for (Index row = begin; row < end; row += rows_per_task) {
        tasks.push_back({list, first_head / group, first_head, n_heads, row,
                         std::min(rows_per_task, end - row), n_groups});
      }
      ++n_groups;
    }
  }
  return tasks;
}

void take(const float* from, Index n, float* to) {
  std::copy_n(from, n, to);
}
void take(const std::uint16_t* from, Index n, std::uint16_t* to) {
  std::copy_n(from, n, to);
}
void take(const std::uint16_t* from, Index n, float* to) {
  to_float(DType::bf16, from, to, static_cast<std::size_t>(n));
}

/// Copies rows of the cache that lie at ascending positions, runs of neighbours at once.
template <class From, class To>
void copy_rows(TensorView<const From> rows, std::span<const KeyPos> keys, To* out, Index width) {
  const Index d = rows.dim(1);
  const auto n_keys = static_cast<Index>(keys.size());
  for (Index first = 0; first < n_keys;) {
    Index last = first + 1;
    const KeyPos begin = keys[static_cast<std::size_t>(first)];
    while (last < n_keys && keys[static_cast<std::size_t>(last)] == begin + (last - first)) ++last;
    if (width == d) {
      take(rows.row(begin).data(), (last - first) * d, out + first * d);
    } else {
      for (Index i = first; i < last; ++i)
        take(rows.row(begin + i - first).data(), d, out + i * width);
    }
    first = last;
  }
}

/// The part of the list that the task's last query sees, and how wide rows are.
void look_at(const AttentionQuestion& call, const Summaries& summaries, const Task& task,
             Scratch& scratch) {
  const auto last_pos = static_cast<KeyPos>(call.pos_begin + task.first_row + task.n_rows - 1);
  const auto end = std::upper_bound(task.list.keys.begin(), task.list.keys.end(), last_pos);
  scratch.keys = task.list.keys.first(static_cast<std::size_t>(end - task.list.keys.begin()));
  scratch.n_summaries = summaries.has_stated_share() ? 0 : summaries.count(task.kv_head);
  const bool has_addends = scratch.n_summaries > 0 || !task.list.log_weight.empty();
  scratch.width = call.q.dim(2) + (has_addends ? 1 : 0);
}

/// Copies the rows [begin, end) of summaries and seen keys, in this order, to `rows` from row `at`
/// on, where there is room.
void gather(const AttentionQuestion& call, const Summaries& summaries, const Task& task,
            Index begin, Index end, const Scratch& seen, const HalfRows& halves, ListRows& rows,
            Index at) {
  const Index d = call.q.dim(2);
  const Index width = seen.width;
  const Index first_key = std::clamp(seen.n_summaries, begin, end);
  const auto keys = seen.keys.subspan(static_cast<std::size_t>(first_key - seen.n_summaries),
                                      static_cast<std::size_t>(end - first_key));
  const Index to = (at + first_key - begin) * width;
  if (halves && width == d) {
    copy_rows(halves.k.sub(task.kv_head), keys, rows.k16.data() + to, d);
    copy_rows(halves.v.sub(task.kv_head), keys, rows.v16.data() + to, d);
    return;
  }
  if (halves) {
    copy_rows(halves.k.sub(task.kv_head), keys, rows.k.data() + to, width);
    copy_rows(halves.v.sub(task.kv_head), keys, rows.v.data() + to, width);
  } else {
    copy_rows(call.k.sub(task.kv_head), keys, rows.k.data() + to, width);
    copy_rows(call.v.sub(task.kv_head), keys, rows.v.data() + to, width);
  }
  if (width == d) return;
  for (Index row = begin; row < end; ++row) {
    float* k = rows.k.data() + (at + row - begin) * width;
    float* v = rows.v.data() + (at + row - begin) * width;
    v[d] = 0.0f;
    if (row >= seen.n_summaries) {
      const auto key = static_cast<std::size_t>(row - seen.n_summaries);
      k[d] = task.list.log_weight.empty() ? 0.0f : task.list.log_weight[key];
      continue;
    }
    const Index from = summaries.begin_of(task.kv_head) + row;
    std::copy_n(summaries.k.view().row(from).data(), d, k);
    std::copy_n(summaries.v.view().row(from).data(), d, v);
    k[d] = summaries.log_count[static_cast<std::size_t>(from)];
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

/// Query heads vary fastest among a task's queries.
Index head_of(const Task& task, Index query) {
  return task.first_head + query % task.n_heads;
}
Index row_of(const Task& task, Index query) {
  return task.first_row + query / task.n_heads;
}

/// The task's queries (heads vary fastest) side by side in lanes, all blocks of lanes against a
/// block of keys at a time.
void attend_blocks(const AttentionQuestion& call, const Selection& selection, const Task& task,
                   const ListRows& rows, Scratch& scratch, const AttentionLanes& answer,
                   const HalfRows& halves) {
  const Index d = call.q.dim(2);
  const Index width = scratch.width;
  const Index n_queries = task.n_rows * task.n_heads;
  const Index lanes = n_queries > kNarrowLanes ? kWideLanes : kNarrowLanes;
  const Index n_blocks = (n_queries + lanes - 1) / lanes;
  const Index shared_floats = lane_attention_scratch(width);
  const Index block_floats = (2 * width + 3) * lanes;
  const Index needed = shared_floats + n_blocks * block_floats;
  if (scratch.lanes.count() < needed) scratch.lanes = Tensor<float>::uninitialized({needed});
  scratch.blocks.resize(static_cast<std::size_t>(n_blocks));
  scratch.kernels.clear();
  for (Index b = 0; b < n_blocks; ++b) {
    QueryBlock& block = scratch.blocks[static_cast<std::size_t>(b)];
    float* q = scratch.lanes.data() + shared_floats + b * block_floats;
    for (Index lane = 0; lane < lanes; ++lane) {
      const Index query = std::min(b * lanes + lane, n_queries - 1);
      const auto pos = static_cast<KeyPos>(call.pos_begin + row_of(task, query));
      const auto n_seen =
          std::upper_bound(scratch.keys.begin(), scratch.keys.end(), pos) - scratch.keys.begin();
      block.last_slot[lane] = static_cast<std::int32_t>(scratch.n_summaries + n_seen) - 1;
      block.sink_logits[lane] =
          call.sink_logits.empty()
              ? 0.0f
              : call.sink_logits[static_cast<std::size_t>(head_of(task, query))];
      const bool is_used = b * lanes + lane < n_queries;
      const float scale = is_used ? call.score_scale : 0.0f;
      const float* src = &call.q(head_of(task, query), row_of(task, query), Index{0});
      for (Index f = 0; f < d; ++f) q[f * lanes + lane] = scale * src[f];
      if (width > d) q[d * lanes + lane] = is_used ? 1.0f : 0.0f;
    }
    LaneAttention kernel;
    kernel.q = q;
    kernel.pos = block.last_slot;
    kernel.lanes = lanes;
    if (halves && width == d) {
      kernel.k16 = rows.k16.data();
      kernel.v16 = rows.v16.data();
    } else {
      kernel.k = rows.k.data();
      kernel.v = rows.v.data();
    }
    kernel.d_head = width;
    kernel.cap = call.score_cap;
    kernel.has_addends = width > d;
    kernel.key_end = *std::max_element(block.last_slot, block.last_slot + lanes) + 1;
    if (!call.sink_logits.empty()) kernel.sink_logits = block.sink_logits;
    kernel.out = q + width * lanes;
    kernel.lse = block.lse;
    kernel.scratch = kernel.out + width * lanes;
    scratch.kernels.push_back(kernel);
  }
  const bool has_keys = std::any_of(scratch.kernels.begin(), scratch.kernels.end(),
                                    [](const LaneAttention& kernel) { return kernel.key_end > 0; });
  if (has_keys) lane_attention(scratch.kernels, scratch.lanes.data(), halves.matmul);
  for (Index query = 0; query < n_queries; ++query) {
    const Index lane = query % lanes;
    const QueryBlock& block = scratch.blocks[static_cast<std::size_t>(query / lanes)];
    const float* out = scratch.kernels[static_cast<std::size_t>(query / lanes)].out;
    const float lse =
        block.last_slot[lane] >= 0 ? block.lse[lane] : -std::numeric_limits<float>::infinity();
    write_result(selection, {head_of(task, query), row_of(task, query), out + lane, lanes, lse},
                 call.q.dim(0), d, answer);
  }
}

/// The few queries of a decode step as rows, and where the list ends for each.
struct FewQueries {
  Index n = 0;
  Index n_spans = 0;                      // of the list
  float* q = nullptr;                     // [n, width]
  std::int32_t last_slot[kMaxRowTokens];  // the causal mask in the list's own numbering
};

/// Room for the queries of the task and `n_more` floats behind them.
FewQueries few_queries(const AttentionQuestion& call, const Task& task, Scratch& scratch,
                       Index n_more) {
  const Index d = call.q.dim(2);
  const Index width = scratch.width;
  FewQueries few;
  few.n = task.n_rows * task.n_heads;
  few.n_spans = (scratch.n_rows() + kKeySpan - 1) / kKeySpan;
  const Index needed = few.n * width + n_more;
  if (scratch.lanes.count() < needed) scratch.lanes = Tensor<float>::uninitialized({needed});
  few.q = scratch.lanes.data();
  for (Index i = 0; i < few.n; ++i) {
    const auto pos = static_cast<KeyPos>(call.pos_begin + row_of(task, i));
    const auto n_seen =
        std::upper_bound(scratch.keys.begin(), scratch.keys.end(), pos) - scratch.keys.begin();
    few.last_slot[i] = static_cast<std::int32_t>(scratch.n_summaries + n_seen) - 1;
    const float* src = &call.q(head_of(task, i), row_of(task, i), Index{0});
    for (Index f = 0; f < d; ++f) few.q[i * width + f] = call.score_scale * src[f];
    if (width > d) few.q[i * width + d] = 1.0f;
  }
  return few;
}

/// The part of one span of the list. part [few.n, width + 2]
void attend_span(const AttentionQuestion& call, const Selection& selection, const Task& task,
                 const FewQueries& few, Index span, Scratch& scratch, float* part) {
  const Index n = scratch.n_rows();
  const Index begin = span * kKeySpan;
  const Index end = std::min(n, begin + kKeySpan);
  std::int32_t slot_in_span[kMaxRowTokens];
  for (Index i = 0; i < few.n; ++i)
    slot_in_span[i] = few.last_slot[i] - static_cast<std::int32_t>(begin);
  RowAttention kernel;
  kernel.q = few.q;
  kernel.pos = slot_in_span;
  kernel.n_rows = few.n;
  if (scratch.width == call.q.dim(2)) {  // nothing beside the keys: read where they lie
    kernel.k = call.k.sub(task.kv_head).data();
    kernel.v = call.v.sub(task.kv_head).data();
    kernel.rows = scratch.keys.data() + begin;
  } else {
    scratch.rows.reserve(end - begin, scratch.width, /*as_halves=*/false);
    gather(call, selection.summaries, task, begin, end, scratch, HalfRows{}, scratch.rows,
           /*at=*/0);
    kernel.k = scratch.rows.k.data();
    kernel.v = scratch.rows.v.data();
  }
  kernel.d_head = scratch.width;
  kernel.cap = call.score_cap;
  kernel.has_addends = scratch.width > call.q.dim(2);
  kernel.key_end = end - begin;
  kernel.part = part;
  row_attention(kernel);
}

/// Joins the spans' parts [n_spans, few.n, width + 2]. out: room for [width]
void join_spans(const AttentionQuestion& call, const Selection& selection, const Task& task,
                const FewQueries& few, Index width, const float* parts, float* out,
                const AttentionLanes& answer) {
  const Index part = width + 2;
  for (Index i = 0; i < few.n; ++i) {
    float lse = -std::numeric_limits<float>::infinity();
    if (few.last_slot[i] >= 0) {
      const Index n_parts = few.last_slot[i] / kKeySpan + 1;
      const float* sink_logit = call.sink_logits.empty()
                                    ? nullptr
                                    : &call.sink_logits[static_cast<std::size_t>(head_of(task, i))];
      lse = join_row_parts(parts + i * part, n_parts, few.n * part, width, sink_logit, out);
    }
    write_result(selection, {head_of(task, i), row_of(task, i), out, /*lanes=*/1, lse},
                 call.q.dim(0), call.q.dim(2), answer);
  }
}

/// The few queries of a decode step, a span of the list at a time; threads share the spans
/// of a list.
void attend_few(const AttentionQuestion& call, const Selection& selection,
                std::span<const Task> tasks, std::vector<Scratch>& scratch,
                const AttentionLanes& answer, ThreadPool& pool) {
  struct Unit {
    std::size_t task;
    Index span;
    Index part_begin;  // of its floats
  };
  std::vector<Unit> units;
  std::vector<Index> parts_of(tasks.size());  // where a task's parts begin
  Index n_floats = 0;
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    Scratch& memory = scratch.front();
    look_at(call, selection.summaries, tasks[t], memory);
    const Index n = memory.n_rows();
    parts_of[t] = n_floats;
    for (Index span = 0; span * kKeySpan < n; ++span) {
      units.push_back({t, span, n_floats});
      n_floats += tasks[t].n_rows * tasks[t].n_heads * (memory.width + 2);
    }
  }
  auto parts = Tensor<float>::uninitialized({std::max<Index>(n_floats, 1)});
  pool.parallel_for(static_cast<Index>(units.size()), [&](Index index, int worker) {
    const Unit& unit = units[static_cast<std::size_t>(index)];
    Scratch& memory = scratch[static_cast<std::size_t>(worker)];
    look_at(call, selection.summaries, tasks[unit.task], memory);
    const FewQueries few = few_queries(call, tasks[unit.task], memory, 0);
    attend_span(call, selection, tasks[unit.task], few, unit.span, memory,
                parts.data() + unit.part_begin);
  });
  pool.parallel_for(static_cast<Index>(tasks.size()), [&](Index index, int worker) {
    const Task& task = tasks[static_cast<std::size_t>(index)];
    Scratch& memory = scratch[static_cast<std::size_t>(worker)];
    look_at(call, selection.summaries, task, memory);
    const FewQueries few = few_queries(call, task, memory, memory.width);
    join_spans(call, selection, task, few, memory.width,
               parts.data() + parts_of[static_cast<std::size_t>(index)],
               memory.lanes.data() + few.n * memory.width, answer);
  });
}

/// Gathers the rows of all lists, one `shared` per group, with all threads. False where tasks had
/// better gather for themselves: where there are lists for all threads, or all together would take
/// more than 64 MiB.
bool gather_shared(const AttentionQuestion& call, const Selection& selection,
                   std::span<const Task> tasks, std::vector<Scratch>& scratch,
                   const HalfRows& halves, ThreadPool& pool, std::vector<ListRows>& shared) {
  constexpr Index kMaxFloats = Index{16} << 20;
  constexpr Index kRowsOfPiece = 128;
  const Index n_groups = tasks.empty() ? 0 : tasks.back().group + 1;
  if (static_cast<Index>(tasks.size()) == n_groups || n_groups >= 2 * pool.n_threads())
    return false;
  struct Piece {
    const Task* task;
    Index begin, end;
  };
  std::vector<Piece> pieces;
  Index n_floats = 0;
  Scratch& seen = scratch.front();
  struct Size {
    Index n_rows, width;
  };
  std::vector<Size> sizes(static_cast<std::size_t>(n_groups));
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    // The last one sees most.
    if (t + 1 < tasks.size() && tasks[t + 1].group == tasks[t].group) continue;
    look_at(call, selection.summaries, tasks[t], seen);
    sizes[static_cast<std::size_t>(tasks[t].group)] = {seen.n_rows(), seen.width};
    n_floats += 2 * (seen.n_rows() + seen.n_rows() / 4 + kKeyBlock) * seen.width;
    for (Index row = 0; row < seen.n_rows(); row += kRowsOfPiece) {
      pieces.push_back({&tasks[t], row, std::min(row + kRowsOfPiece, seen.n_rows())});
    }
  }
  if (n_floats > kMaxFloats) return false;
  if (shared.size() < sizes.size()) shared.resize(sizes.size());
  for (std::size_t group = 0; group < sizes.size(); ++group) {
    const auto [n, width] = sizes[group];
    shared[group].reserve(n, width, halves && width == call.q.dim(2));
  }
  pool.parallel_for(static_cast<Index>(pieces.size()), [&](Index index, int worker) {
    const auto& [task, begin, end] = pieces[static_cast<std::size_t>(index)];
    Scratch& memory = scratch[static_cast<std::size_t>(worker)];
    look_at(call, selection.summaries, *task, memory);
    gather(call, selection.summaries, *task, begin, end, memory, halves,
           shared[static_cast<std::size_t>(task->group)], begin);
  });
  return true;
}

}  // namespace

void attend_lists(const AttentionQuestion& call, const Selection& selection,
                  const AttentionLanes& answer, ThreadPool& pool, const HalfRows& halves,
                  ListMemory* memory) {
  const std::vector<Task> tasks = plan_tasks(call, selection, pool.n_threads());
  ListMemory own;
  auto& [scratch, shared] = (memory == nullptr ? own : *memory).impl();
  if (scratch.size() < static_cast<std::size_t>(pool.n_threads()))
    scratch.resize(static_cast<std::size_t>(pool.n_threads()));
  const bool is_few = std::all_of(tasks.begin(), tasks.end(), [](const Task& task) {
    return task.n_rows * task.n_heads <= kMaxRowTokens;
  });
  if (is_few && !halves) {
    attend_few(call, selection, tasks, scratch, answer, pool);
    return;
  }
  const bool is_shared = gather_shared(call, selection, tasks, scratch, halves, pool, shared);
  pool.parallel_for(static_cast<Index>(tasks.size()), [&, &own_scratch = scratch, &rows = shared](
                                                          Index index, int worker) {
    const Task& task = tasks[static_cast<std::size_t>(index)];
    Scratch& mine = own_scratch[static_cast<std::size_t>(worker)];
    look_at(call, selection.summaries, task, mine);
    if (is_shared) {
      attend_blocks(call, selection, task, rows[static_cast<std::size_t>(task.group)], mine, answer,
                    halves);
      return;
    }
    mine.rows.reserve(mine.n_rows(), mine.width, halves && mine.width == call.q.dim(2));
    gather(call, selection.summaries, task, 0, mine.n_rows(), mine, halves, mine.rows, /*at=*/0);
    attend_blocks(call, selection, task, mine.rows, mine, answer, halves);
  });
}

}  // namespace kvscope

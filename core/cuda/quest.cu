#include "core/cuda/quest.hpp"

#include <algorithm>
#include <bit>
#include <string>

#include "core/cuda/quest_boxes.cuh"
#include "core/cuda/quest_step.cuh"
#include "core/cuda/row_scores.cuh"
#include "core/cuda/scratch.hpp"
#include "core/cuda/top_lists.cuh"

namespace kvscope::gpu {

namespace {

[[noreturn]] void refuse(const std::string& expected, long long found) {
  throw ShapeError("Quest on the GPU: expected " + expected + ", found " + std::to_string(found));
}

void check_options(const CallShape& shape, const QuestOptions& options) {
  check_shape(shape);
  if (options.page_size < 1 || !std::has_single_bit(static_cast<unsigned>(options.page_size)) ||
      options.page_size > 4096)
    refuse("pages of a power of two keys, at most 4096", options.page_size);
  if (options.budget < 1) refuse("a budget of at least one key", options.budget);
  if (options.owner != QuestOwner::group_sum && shape.group() > kMostVectors)
    refuse("at most 16 query heads per KV head", shape.group());
}

int pages_of(std::int64_t n_keys, int page_size) {
  return static_cast<int>((n_keys + page_size - 1) / page_size);
}

int parts_of(const CallShape& shape, const QuestOptions& options) {
  return options.owner == QuestOwner::group_sum ? shape.group() : 1;
}

/// Places of a row of bounds: a multiple of four.
std::int64_t stride_of(int max_pages) {
  return (max_pages + 3) / 4 * 4;
}

}  // namespace

Quest::Arrays Quest::lay_out(Scratch& plan, const CallShape& shape, const QuestOptions& options) {
  check_options(shape, options);
  const auto n_pages = static_cast<std::size_t>(pages_of(shape.capacity, options.page_size));
  const auto n_batch = static_cast<std::size_t>(shape.n_batch);
  const auto d_head = static_cast<std::size_t>(shape.d_head);
  const std::size_t n_kv_lists = n_batch * static_cast<std::size_t>(shape.n_kv);
  const std::size_t n_lists = options.owner == QuestOwner::q_head
                                  ? n_batch * static_cast<std::size_t>(shape.n_q)
                                  : n_kv_lists;
  Arrays at;
  at.boxes = plan.add<std::byte>(n_kv_lists * n_pages * 2 * d_head * size_of(shape.dtype));
  at.bounds = plan.add<float>(
      n_lists * static_cast<std::size_t>(stride_of(pages_of(shape.capacity, options.page_size))));
  at.items =
      plan.add<std::int32_t>(n_lists * static_cast<std::size_t>(most_pages_of(
                                           shape.capacity, options.page_size, options.budget)));
  at.counts = plan.add<std::int32_t>(n_lists);
  at.vectors = plan.add<float>(n_kv_lists * kMostVectors * 2 * d_head);
  at.n_whole = plan.add<std::int32_t>(n_batch);
  at.keys =
      plan.add<std::int32_t>(n_kv_lists * static_cast<std::size_t>(key_stride(shape, options)));
  at.key_counts = plan.add<std::int32_t>(n_kv_lists);
  return at;
}

std::size_t Quest::device_bytes(const CallShape& shape, const QuestOptions& options) {
  Scratch plan;
  lay_out(plan, shape, options);
  return plan.size();
}

Quest::Quest(const CallShape& shape, const QuestOptions& options)
    : shape_(shape),
      options_(options),
      max_pages_(pages_of(shape.capacity, options.page_size)),
      most_items_(most_pages_of(shape.capacity, options.page_size, options.budget)),
      memory_(device_bytes(shape, options), "Quest's boxes and bounds") {
  Scratch plan(memory_.data());
  at_ = lay_out(plan, shape, options);
}

int Quest::n_owners() const {
  return options_.owner == QuestOwner::q_head ? shape_.n_q : shape_.n_kv;
}

void Quest::append(const void* k, const std::int32_t* n_past, int n_tok, StreamHandle stream) {
  if (n_tok < 1) refuse("at least one new key", n_tok);
  n_appended_ = n_tok;
  append_boxes(shape_, k, n_past, n_tok, options_.page_size, max_pages_, at_.boxes, stream);
}

RowScores Quest::bounds_call(const void* q, const std::int32_t* n_past) const {
  RowScores scoring;
  scoring.rows = at_.boxes;
  scoring.capacity = max_pages_;
  scoring.dtype = shape_.dtype;
  scoring.width = 2 * shape_.d_head;
  scoring.n_batch = shape_.n_batch;
  scoring.n_kv = shape_.n_kv;
  scoring.form = Vectors::doubled;
  scoring.vectors = q;
  scoring.n_parts = parts_of(shape_, options_);
  scoring.n_vectors = options_.owner == QuestOwner::group_sum ? 1 : shape_.group();
  scoring.n_past = n_past;
  scoring.n_more = 1;
  scoring.page_size = options_.page_size;
  scoring.rows_are_there = n_appended_ == 1;  // it writes the box of n_past's page alone
  scoring.reduce = options_.owner == QuestOwner::q_head ? Reduce::each : Reduce::largest;
  scoring.scores = at_.bounds;
  scoring.stride = stride_of(max_pages_);
  return scoring;
}

TopLists Quest::lists_call(const std::int32_t* n_past) const {
  TopLists top;
  top.scores = at_.bounds;
  top.stride = stride_of(max_pages_);
  top.n_batch = shape_.n_batch;
  top.n_owners = n_owners();
  top.n_past = n_past;
  top.of_pages = true;
  top.rule = options_.pages;
  top.budget = options_.budget;
  top.page_size = options_.page_size;
  top.items = at_.items;
  top.counts = at_.counts;
  top.item_stride = most_items_;
  return top;
}

void Quest::choose(const void* q, const std::int32_t* n_past, StreamHandle stream) {
  score_rows(bounds_call(q, n_past), stream);
  make_top_lists(lists_call(n_past), stream);
}

bool Quest::steps_in_one_kernel() const {
  return takes_quest_step(shape_, bounds_call(nullptr, nullptr), lists_call(nullptr));
}

void Quest::step(const DeviceRows& rows, void* out, float* lse, StreamHandle stream,
                 const StepOptions& options) {
  if (rows.n_tok != 1) refuse("one query per sequence", rows.n_tok);
  if (!options.in_one_kernel || !steps_in_one_kernel()) {
    append(rows.k, rows.n_past, 1, stream);
    choose(rows.q, rows.n_past, stream);
    attend(shape_, rows, lists(), out, lse, {OwnKeys::in_list}, stream);
    return;
  }
  QuestStep step;
  step.bounds = bounds_call(rows.q, rows.n_past);
  step.lists = lists_call(rows.n_past);
  step.rows = rows;
  step.out = out;
  step.lse = lse;
  step.n_blocks = options.n_blocks;
  step.n_stages = options.n_stages;
  quest_step(shape_, step, stream);
  n_appended_ = 1;
}

DeviceLists Quest::lists() const {
  return {at_.items, at_.counts, most_items_, n_owners(), options_.page_size};
}

}  // namespace kvscope::gpu

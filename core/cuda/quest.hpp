// Quest on the device: boxes of pages kept as keys come, pages chosen per query head or KV head
// in a decode step of a batch, and attention to them. The rules are those of
// core/selectors/methods/quest.cpp.
#pragma once

#include "core/attention/list_plan.hpp"
#include "core/cuda/attend.hpp"
#include "core/cuda/call_shape.hpp"
#include "core/cuda/device.hpp"

namespace kvscope::gpu {

class Scratch;
struct RowScores;
struct TopLists;

using QuestPages = ListPlan::Pages;  // how many pages a budget buys
using QuestOwner = ListPlan::Owner;  // who owns a list, and how a group's bounds become one

struct QuestOptions {
  int page_size = 16;  // a power of two
  int budget = 2048;   // in keys
  QuestPages pages = QuestPages::kernel;
  QuestOwner owner = QuestOwner::q_head;
};

/// How a step runs; automatic: in one kernel where it takes the shapes. The rest is for tests and
/// measurements.
struct StepOptions {
  bool in_one_kernel = true;
  int n_blocks = 0;  // of the one kernel, per KV head and sequence: 1 to 16; 0: by the shapes
  int n_stages = 0;  // of its rings: QuestStep::n_stages
};

/// One layer's boxes and scratch memory, planned when it is made. Calls put kernels into the stream
/// and return. Order of a step: append, choose, attend, or step() alone; the step's key is part of
/// the context.
class Quest {
 public:
  Quest(const CallShape& shape, const QuestOptions& options);

  /// What the constructor will ask for.
  static std::size_t device_bytes(const CallShape& shape, const QuestOptions& options);

  /// Makes the boxes of the pages that hold positions n_past to n_past + n_tok, from these pages'
  /// keys up to there: after a rollback, boxes are right again with the next append.
  void append(const void* k, const std::int32_t* n_past, int n_tok, StreamHandle stream);

  /// Chooses pages for one query per sequence at position n_past. Bounds by f32 products of exact
  /// boxes; equal bounds: the earlier page.
  void choose(const void* q, const std::int32_t* n_past, StreamHandle stream);

  /// Chooses keys for the rows of a chunk or a verification, after append() of the call's keys:
  /// whole pages before the call, one list per KV head by the sum of all rows' and heads' bounds,
  /// and the keys of the page that the call's first token cuts. options.owner does not matter.
  void choose_before(const void* q, const std::int32_t* n_past, int n_tok, StreamHandle stream);
  /// Its lists, [n_batch, n_kv, most keys].
  DeviceLists lists_before() const;

  /// append() of the step's key, choose() and attend() to lists() (OwnKeys::in_list): what it makes
  /// is what these make, out and lse to rounding. rows.n_tok must be 1.
  void step(const DeviceRows& rows, void* out, float* lse, StreamHandle stream,
            const StepOptions& options = {});
  /// True if step() is one kernel: bf16, at most 8 query heads per KV head, and a context whose
  /// bounds fit into shared memory.
  bool steps_in_one_kernel() const;

  /// The last choice, [n_batch, n_owners, most pages].
  DeviceLists lists() const;
  const float* bounds() const { return at_.bounds; }  // [n_batch, n_owners, max_pages()]
  const void* boxes() const {
    return at_.boxes;
  }  // [n_batch, n_kv, max_pages(), 2, d_head]: high, low
  int max_pages() const { return max_pages_; }
  int n_owners() const;
  const CallShape& shape() const { return shape_; }

 private:
  RowScores bounds_call(const void* q, const std::int32_t* n_past) const;
  TopLists lists_call(const std::int32_t* n_past) const;
  static int key_stride(const CallShape& shape, const QuestOptions& options);

  CallShape shape_;
  QuestOptions options_;
  int max_pages_ = 0;
  int most_items_ = 0;
  int n_appended_ = 0;  // keys of the last append() or step()
  DeviceBuffer memory_;
  struct Arrays {
    std::byte* boxes = nullptr;
    float* bounds = nullptr;
    std::int32_t* items = nullptr;
    std::int32_t* counts = nullptr;
    float* vectors = nullptr;         // of choose_before(): [n_batch, n_kv, 16, 2 d_head]
    std::int32_t* n_whole = nullptr;  // the same, [n_batch]: pages before the call
    std::int32_t* keys = nullptr;
    std::int32_t* key_counts = nullptr;
  };
  static Arrays lay_out(Scratch& plan, const CallShape& shape, const QuestOptions& options);
  Arrays at_;
};

}  // namespace kvscope::gpu

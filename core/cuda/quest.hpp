// Quest on the device: boxes of pages kept as keys come, pages chosen per query head or KV head
// in a decode step of a batch, and attention to them. The rules are those of
// core/selectors/methods/quest.cpp.
#pragma once

#include "core/attention/native_rule.hpp"
#include "core/cuda/attend.hpp"
#include "core/cuda/call_shape.hpp"
#include "core/cuda/device.hpp"

namespace kvscope::gpu {

using QuestPages = NativeRule::Pages;  // how many pages a budget buys
using QuestOwner = NativeRule::Owner;  // who owns a list, and how a group's bounds become one

struct QuestOptions {
  int page_size = 16;  // a power of two
  int budget = 2048;   // in keys
  QuestPages pages = QuestPages::kernel;
  QuestOwner owner = QuestOwner::q_head;
};

/// One layer's boxes and scratch memory, planned when it is made. Calls put kernels into the stream
/// and return. Order of a step: append, choose, attend; the step's key is part of the context.
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

  /// Attention to the last choice; rows.n_tok must be 1.
  void attend(const DeviceRows& rows, void* out, float* lse, StreamHandle stream,
              const AttendOptions& options = {OwnKeys::in_list}) const;

  /// The last choice, [n_batch, n_owners, most pages].
  DeviceLists lists() const;
  const float* bounds() const { return bounds_; }  // [n_batch, n_owners, max_pages()]
  const void* boxes() const {
    return boxes_;
  }  // [n_batch, n_kv, max_pages(), 2, d_head]: high, low
  int max_pages() const { return max_pages_; }
  int n_owners() const;

 private:
  CallShape shape_;
  QuestOptions options_;
  int max_pages_ = 0;
  int most_items_ = 0;
  int n_appended_ = 0;  // keys of the last append()
  DeviceBuffer memory_;
  std::byte* boxes_ = nullptr;
  float* bounds_ = nullptr;
  std::int32_t* items_ = nullptr;
  std::int32_t* counts_ = nullptr;
};

}  // namespace kvscope::gpu

// The GPU component behind C functions, for tests/bench/cuda_selection.py: shapes as numbers,
// rows as addresses of torch's tensors, its stream. Every function returns null or what went
// wrong.
#include <memory>
#include <string>

#include "core/cuda/attend.hpp"
#include "core/cuda/device.hpp"
#include "core/cuda/quest.hpp"
#include "core/cuda/quoka.hpp"

// As ctypes passes them; not in an unnamed namespace, which would hide the functions below.
struct ApiShape {
  int n_batch, n_q, n_kv, d_head, capacity, is_bf16;
};
struct ApiRows {
  const void *q, *k, *v;
  const std::int32_t* n_past;
  void* out;
  float* lse;
  int n_tok, n_splits;
};

namespace {

using kvscope::gpu::AttendOptions;
using kvscope::gpu::CallShape;
using kvscope::gpu::DeviceRows;
using kvscope::gpu::StreamHandle;

template <class Work>
const char* sentence(const Work& work) {
  thread_local std::string what;
  try {
    work();
    return nullptr;
  } catch (const std::exception& error) {
    what = error.what();
    return what.c_str();
  }
}

CallShape shape_of(const ApiShape& from) {
  CallShape shape;
  shape.n_batch = from.n_batch, shape.n_q = from.n_q, shape.n_kv = from.n_kv;
  shape.d_head = from.d_head, shape.capacity = from.capacity;
  shape.dtype = from.is_bf16 != 0 ? kvscope::DType::bf16 : kvscope::DType::f32;
  shape.score_scale = from.d_head == 64 ? 0.125f : 0.08838834764831845f;
  return shape;
}

DeviceRows rows_of(const ApiRows& rows) {
  return {rows.q, rows.k, rows.v, rows.n_past, rows.n_tok};
}

}  // namespace

extern "C" {

const char* quoka_make(ApiShape shape, int n_queries, int budget, void** made) {
  return sentence([&] {
    *made = new kvscope::gpu::Quoka(shape_of(shape), {n_queries, budget, 1024, 1e-12});
  });
}
void quoka_free(void* quoka) {
  delete static_cast<kvscope::gpu::Quoka*>(quoka);
}
const char* quoka_append(void* quoka, const void* k, const std::int32_t* n_past, int n_tok,
                         void* stream) {
  return sentence([&] {
    static_cast<kvscope::gpu::Quoka*>(quoka)->append(k, n_past, n_tok,
                                                     static_cast<StreamHandle>(stream));
  });
}
const char* quoka_choose(void* quoka, ApiRows rows, void* stream) {
  return sentence([&] {
    static_cast<kvscope::gpu::Quoka*>(quoka)->choose(rows_of(rows),
                                                     static_cast<StreamHandle>(stream));
  });
}
/// Ends after the step (Quoka::Step).
const char* quoka_choose_until(void* quoka, ApiRows rows, int step, void* stream) {
  return sentence([&] {
    using kvscope::gpu::Quoka;
    static_cast<Quoka*>(quoka)->choose(rows_of(rows), static_cast<StreamHandle>(stream),
                                       static_cast<Quoka::Step>(step));
  });
}
const char* quoka_attend(void* quoka, ApiRows rows, void* stream) {
  return sentence([&] {
    AttendOptions options;
    options.n_splits = rows.n_splits;
    const auto* const chosen = static_cast<kvscope::gpu::Quoka*>(quoka);
    kvscope::gpu::attend(chosen->shape(), rows_of(rows), chosen->lists(), rows.out, rows.lse,
                         options, static_cast<StreamHandle>(stream));
  });
}
const char* quoka_lists(void* quoka, const void** items, const void** counts) {
  const auto lists = static_cast<kvscope::gpu::Quoka*>(quoka)->lists();
  *items = lists.items, *counts = lists.counts;
  return nullptr;
}

const char* quest_make(ApiShape shape, int page_size, int budget, int owner, void** made) {
  return sentence([&] {
    *made = new kvscope::gpu::Quest(shape_of(shape),
                                    {page_size, budget, kvscope::gpu::QuestPages::kernel,
                                     static_cast<kvscope::gpu::QuestOwner>(owner)});
  });
}
void quest_free(void* quest) {
  delete static_cast<kvscope::gpu::Quest*>(quest);
}
const char* quest_append(void* quest, const void* k, const std::int32_t* n_past, int n_tok,
                         void* stream) {
  return sentence([&] {
    static_cast<kvscope::gpu::Quest*>(quest)->append(k, n_past, n_tok,
                                                     static_cast<StreamHandle>(stream));
  });
}
const char* quest_choose(void* quest, ApiRows rows, void* stream) {
  return sentence([&] {
    static_cast<kvscope::gpu::Quest*>(quest)->choose(rows.q, rows.n_past,
                                                     static_cast<StreamHandle>(stream));
  });
}
const char* quest_attend(void* quest, ApiRows rows, void* stream) {
  return sentence([&] {
    AttendOptions options;
    options.own_keys = kvscope::gpu::OwnKeys::in_list;
    options.n_splits = rows.n_splits;
    const auto* const chosen = static_cast<kvscope::gpu::Quest*>(quest);
    kvscope::gpu::attend(chosen->shape(), rows_of(rows), chosen->lists(), rows.out, rows.lse,
                         options, static_cast<StreamHandle>(stream));
  });
}

/// The whole step; n_splits: blocks per KV head and sequence.
const char* quest_step(void* quest, ApiRows rows, void* stream) {
  return sentence([&] {
    static_cast<kvscope::gpu::Quest*>(quest)->step(rows_of(rows), rows.out, rows.lse,
                                                   static_cast<StreamHandle>(stream),
                                                   {.n_blocks = rows.n_splits});
  });
}

const char* read_device(void* to, const void* from, std::size_t bytes) {
  return sentence([&] { kvscope::gpu::copy_from_device(to, from, bytes); });
}

const char* attend_dense(ApiShape shape, ApiRows rows, void* stream) {
  return sentence([&] {
    AttendOptions options;
    options.n_splits = rows.n_splits;
    kvscope::gpu::attend(shape_of(shape), rows_of(rows), {}, rows.out, rows.lse, options,
                         static_cast<StreamHandle>(stream));
  });
}

}  // extern "C"

#include "core/cuda/quest_boxes.cuh"

#include "core/cuda/launch.cuh"
#include "core/cuda/ptx.cuh"

namespace kvscope::gpu {

namespace {

constexpr int kThreads = 256;

/// One warp per page; a lane has its channels of all keys.
template <class T, int kWidth>
__global__ void append_boxes_kernel(const T* k, const std::int32_t* n_past, int n_tok,
                                    int page_size, int max_pages, std::int64_t capacity, int n_kv,
                                    T* boxes) {
  constexpr int kEach = kWidth / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int batch = static_cast<int>(blockIdx.z);
  const std::int64_t list = static_cast<std::int64_t>(batch) * n_kv + blockIdx.y;
  take_turn();
  const int n_context = n_past[batch] + n_tok;
  const int first_page = n_past[batch] / page_size;
  const int n_pages = (n_context + page_size - 1) / page_size;
  const int n_warps = static_cast<int>(gridDim.x) * kThreads / 32;
  for (int page = first_page + static_cast<int>(blockIdx.x * kThreads + threadIdx.x) / 32;
       page < n_pages; page += n_warps) {
    float high[kEach];
    float low[kEach];
    find_box(k + list * capacity * kWidth, page * page_size, min((page + 1) * page_size, n_context),
             high, low);
    T* const to = boxes + (list * max_pages + page) * 2 * kWidth + lane * kEach;
#pragma unroll
    for (int c = 0; c < kEach; ++c) {
      store_element(to + c, high[c]);
      store_element(to + kWidth + c, low[c]);
    }
  }
}

template <class T, int kWidth>
void start_boxes(const CallShape& shape, const void* k, const std::int32_t* n_past, int n_tok,
                 int page_size, int max_pages, void* boxes, StreamHandle stream) {
  const int n_pages = n_tok / page_size + 2;
  const Blocks grid(n_pages < 1024 ? (n_pages + 7) / 8 : 128, shape.n_kv, shape.n_batch);
  launch(stream, {grid, kThreads}, "start the boxes of pages", append_boxes_kernel<T, kWidth>,
         static_cast<const T*>(k), n_past, n_tok, page_size, max_pages, shape.capacity, shape.n_kv,
         static_cast<T*>(boxes));
}

}  // namespace

void append_boxes(const CallShape& shape, const void* k, const std::int32_t* n_past, int n_tok,
                  int page_size, int max_pages, void* boxes, StreamHandle stream) {
  with_types(shape, [&]<class T, int kWidth>() {
    start_boxes<T, kWidth>(shape, k, n_past, n_tok, page_size, max_pages, boxes, stream);
  });
}

}  // namespace kvscope::gpu

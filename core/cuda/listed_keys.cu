#include "core/cuda/listed_keys.cuh"

#include "core/cuda/launch.cuh"
#include "core/cuda/ptx.cuh"

namespace kvscope::gpu {

namespace {

constexpr int kThreads = 256;

/// One block per list.
__global__ void list_keys_kernel(DeviceLists pages, const std::int32_t* n_past, int n_latest,
                                 std::int32_t* keys, std::int32_t* counts, int stride) {
  take_turn();
  const int batch = static_cast<int>(blockIdx.y);
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t list = static_cast<std::int64_t>(batch) * gridDim.x + blockIdx.x;
  const std::int32_t* const items = pages.items + list * pages.stride;
  std::int32_t* const to = keys + list * stride;
  const int n_listed = pages.counts[list] * pages.page_size;
  const int n_behind = n_latest == kOfCutPage ? n_past[batch] % pages.page_size : n_latest;
  for (int i = thread; i < n_listed; i += kThreads)
    to[i] = items[i / pages.page_size] * pages.page_size + i % pages.page_size;
  for (int i = thread; i < n_behind; i += kThreads) to[n_listed + i] = n_past[batch] - n_behind + i;
  if (thread == 0) counts[list] = n_listed + n_behind;
}

}  // namespace

void list_keys(const DeviceLists& pages, int n_batch, const std::int32_t* n_past, int n_latest,
               std::int32_t* keys, std::int32_t* counts, int stride, StreamHandle stream) {
  Launch how;
  how.grid = dim3(static_cast<unsigned>(pages.n_owners), static_cast<unsigned>(n_batch));
  how.threads = kThreads;
  launch(stream, how, "start the keys of lists", list_keys_kernel, pages, n_past, n_latest, keys,
         counts, stride);
}

}  // namespace kvscope::gpu

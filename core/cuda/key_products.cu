#include "core/cuda/key_products.hpp"

#include <algorithm>
#include <vector>

#include "core/cuda/row_scores.cuh"

namespace kvscope::gpu {

const float* KeyProducts::compute(const CallShape& shape, const DeviceRows& rows, int n_past,
                                  const ProductVectors& vectors, StreamHandle stream) {
  static_assert(kMost == kMostVectors);
  constexpr const char* kUse = "products with keys";
  check_shape(shape);
  const auto d = static_cast<std::size_t>(shape.d_head);
  const auto n_kv = static_cast<std::size_t>(shape.n_kv);
  std::vector<float> padded(n_kv * kMost * d);
  for (std::size_t kv_head = 0; kv_head < n_kv; ++kv_head) {
    const auto from = vectors.rows.subspan((kv_head * vectors.n_rows + vectors.first) * d);
    std::copy_n(from.begin(), vectors.n * d,
                padded.begin() + static_cast<std::ptrdiff_t>(kv_head * kMost * d));
  }
  stride_ = (std::int64_t{n_past} + rows.n_tok + 3) / 4 * 4;
  RowScores scoring;
  scoring.rows = rows.k;
  scoring.capacity = shape.capacity;
  scoring.dtype = shape.dtype;
  scoring.width = shape.d_head;
  scoring.n_kv = shape.n_kv;
  scoring.vectors = vectors_.upload(padded.data(), padded.size(), kUse, stream);
  scoring.n_vectors = static_cast<int>(vectors.n);
  scoring.n_past = rows.n_past;
  scoring.n_more = rows.n_tok;
  scoring.reduce = Reduce::each;
  scoring.scores =
      products_.room<float>(static_cast<std::int64_t>(n_kv * vectors.n) * stride_, kUse);
  scoring.stride = stride_;
  score_rows(scoring, stream);
  return scoring.scores;
}

}  // namespace kvscope::gpu

// Products in bf16 with f32 sums by NVIDIA's cuBLASLt, which is loaded when it is first needed: the
// program starts, and everything in f32 runs, where the library is missing.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "core/cuda/layer_kernels.hpp"

namespace kvscope::gpu {

/// For one device and one thread at a time.
class BlasLt {
 public:
  /// Throws DeviceError if there is no libcublasLt.so.13 or .12, or it does not start.
  BlasLt();
  ~BlasLt();
  BlasLt(const BlasLt&) = delete;
  BlasLt& operator=(const BlasLt&) = delete;

  /// y[t] = matrix x[t]; matrix and x in bf16, y in f32. x [n_tok, x_stride], y [n_tok, y_stride].
  /// A matrix shape has one algorithm, chosen for kTypicalTokens tokens and without sums that are
  /// split over the columns, whatever n_tok is: an element is then summed the same way in every
  /// call.
  void multiply(const DeviceMatrix& matrix, const void* x, std::int64_t x_stride, float* y,
                std::int64_t y_stride, int n_tok, StreamHandle stream);

  static constexpr int kTypicalTokens = 128;
  static constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

 private:
  struct Library;
  struct Algorithm;
  const Algorithm& algorithm_for(const DeviceMatrix& matrix, std::int64_t x_stride,
                                 std::int64_t y_stride);

  std::shared_ptr<const Library> library_;
  void* handle_ = nullptr;
  void* product_ = nullptr;  // cublasLtMatmulDesc_t
  DeviceBuffer workspace_;
  std::map<std::pair<std::pair<std::int64_t, std::int64_t>, std::pair<std::int64_t, std::int64_t>>,
           Algorithm>
      algorithms_;
};

}  // namespace kvscope::gpu

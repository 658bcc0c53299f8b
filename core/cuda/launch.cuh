// Starting kernels, and turning CUDA's error codes into sentences.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "core/cuda/call_shape.hpp"
#include "core/cuda/device.hpp"
#include "core/cuda/ptx.cuh"

namespace kvscope::gpu {

/// Throws DeviceError unless code says success. `what` completes "the GPU could not".
inline void check(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  cudaGetLastError();  // forgets it: the next call shall not report this one
  throw DeviceError(std::string("the GPU could not ") + what + ": " + cudaGetErrorString(code));
}

/// Lets the kernel have that much dynamic shared memory on the thread's device. The limit is the
/// program's, one for all threads: it only rises, or a launch that needs more would fail beside one
/// that needs less.
void allow_shared_bytes(const void* kernel, int bytes, const char* what);

/// Blocks along x, y and z.
struct Blocks : dim3 {
  explicit(false) Blocks(std::int64_t along_x, std::int64_t along_y = 1, std::int64_t along_z = 1)
      : dim3(static_cast<unsigned>(along_x), static_cast<unsigned>(along_y),
             static_cast<unsigned>(along_z)) {}
};

/// How a kernel is started. It may begin before the kernel ahead of it in the stream has ended, so
/// every kernel waits for that one itself before it touches what others touch (ptx.cuh).
struct Launch {
  Blocks grid;
  int threads = 256;
  int shared_bytes = 0;
  int cluster = 1;  // blocks along x that can read each other's shared memory; divides grid.x
};

template <class... Parameters, class... Arguments>
void launch(cudaStream_t stream, const Launch& shape, const char* what,
            void (*kernel)(Parameters...), Arguments... arguments) {
  if (shape.shared_bytes > 32 * 1024) {  // 48 KiB with the kernel's own arrays need to be asked for
    allow_shared_bytes(reinterpret_cast<const void*>(kernel), shape.shared_bytes, what);
  }
  if (shape.cluster > 8) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1), what);
  }
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = static_cast<unsigned>(shape.cluster);
  attributes[1].val.clusterDim.y = 1;
  attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shape.shared_bytes);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), what);
}

/// Calls run.operator()<T, kWidth>() for what the shape's keys are and how wide its heads.
template <class Run>
void with_types(const CallShape& shape, const Run& run) {
  const auto with_width = [&]<class T>() {
    shape.d_head == 64 ? run.template operator()<T, 64>() : run.template operator()<T, 128>();
  };
  shape.dtype == DType::bf16 ? with_width.template operator()<Bf16>()
                             : with_width.template operator()<float>();
}

}  // namespace kvscope::gpu

#include "core/cuda/device.hpp"

#include <cuda_runtime.h>

#include <algorithm>
#include <list>
#include <map>
#include <mutex>
#include <utility>

#include "core/cuda/launch.cuh"

namespace kvscope::gpu {

namespace {

constexpr int kMajor = 9;  // the kernels are compiled for compute capability 9.0 (H100, H200)

std::string mebibytes(std::size_t bytes) {
  return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB";
}

/// The owners of spare memory, in the order in which they came.
struct SpareOwners {
  std::mutex mutex;  // held while they let go: nobody leaves meanwhile
  std::list<std::pair<const SpareMemory*, std::function<void()>>> all;
};

SpareOwners& spare_owners() {
  static SpareOwners owners;
  return owners;
}

void let_spare_memory_go() {
  SpareOwners& owners = spare_owners();
  const std::lock_guard lock(owners.mutex);
  for (const auto& [owner, let_go] : owners.all) let_go();
}

}  // namespace

SpareMemory::SpareMemory(std::function<void()> let_go) {
  const std::lock_guard lock(spare_owners().mutex);
  spare_owners().all.emplace_back(this, std::move(let_go));
}

SpareMemory::~SpareMemory() {
  const std::lock_guard lock(spare_owners().mutex);
  spare_owners().all.remove_if([&](const auto& one) { return one.first == this; });
}

void allow_shared_bytes(const void* kernel, int bytes, const char* what) {
  static std::mutex mutex;
  static std::map<std::pair<int, const void*>, int> allowed;
  int device = 0;
  check(cudaGetDevice(&device), what);
  const std::lock_guard lock(mutex);
  int& most = allowed[{device, kernel}];
  if (bytes <= most) return;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), what);
  most = bytes;
}

std::string why_no_device(int device) {
  int n_devices = 0;
  const cudaError_t code = cudaGetDeviceCount(&n_devices);
  if (code == cudaErrorInsufficientDriver) {
    cudaGetLastError();
    int needed = 0;
    cudaRuntimeGetVersion(&needed);
    return "no device: there is no NVIDIA driver, or one older than CUDA " +
           std::to_string(needed / 1000) + "." + std::to_string(needed % 1000 / 10) +
           " needs; install a newer driver";
  }
  if (code != cudaSuccess) {
    cudaGetLastError();
    return std::string("no device: ") + cudaGetErrorString(code);
  }
  if (n_devices == 0) return "no device: the driver shows no GPU";
  const std::string gpu = "GPU " + std::to_string(device);
  if (device < 0 || device >= n_devices) {
    return "no device: there is no " + gpu + ", the driver shows " + std::to_string(n_devices) +
           ", counted from 0";
  }
  cudaDeviceProp properties = {};
  if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
    cudaGetLastError();
    return "no device: " + gpu + " does not answer";
  }
  if (properties.major != kMajor) {
    return "no device: " + gpu + " (" + properties.name + ") has compute capability " +
           std::to_string(properties.major) + "." + std::to_string(properties.minor) +
           ", the kernels are for 9.0 (H100, H200)";
  }
  return "";
}

DeviceInfo device_info() {
  int device = 0;
  check(cudaGetDevice(&device), "say which one it is");
  cudaDeviceProp properties = {};
  check(cudaGetDeviceProperties(&properties, device), "describe itself");
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  check(cudaMemGetInfo(&free_bytes, &total_bytes), "say how much memory is free");
  return {properties.name, free_bytes};
}

Stream::Stream() {
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "make a stream");
}

Stream::~Stream() {
  cudaStreamDestroy(stream_);
}

void Stream::wait() const {
  wait_for(stream_);
}

void wait_for(StreamHandle stream) {
  check(cudaStreamSynchronize(stream), "finish its work");
}

void abandon(StreamHandle stream) noexcept {
  cudaStreamSynchronize(stream);
  cudaGetLastError();
}

DeviceBuffer::DeviceBuffer(std::size_t bytes, std::string_view use) : size_(bytes) {
  if (bytes == 0) return;
  void* memory = nullptr;
  cudaError_t code = cudaMalloc(&memory, bytes);
  if (code == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    let_spare_memory_go();
    code = cudaMalloc(&memory, bytes);
  }
  if (code == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    cudaMemGetInfo(&free_bytes, &total_bytes);
    throw DeviceMemoryError("the GPU has not enough memory for " + std::string(use) +
                            ": expected " + mebibytes(bytes) + ", found " + mebibytes(free_bytes) +
                            " free of " + mebibytes(total_bytes) +
                            "; take a shorter context or a smaller batch");
  }
  check(code, "give memory");
  data_ = static_cast<std::byte*>(memory);
  try {
    check(cudaMemset(memory, 0, bytes), "clear memory");
    wait_for(nullptr);  // not for the streams of others
  } catch (...) {
    cudaFree(memory);  // no destructor runs
    throw;
  }
}

DeviceBuffer::~DeviceBuffer() {
  cudaFree(data_);
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void DeviceBuffer::upload(const void* from, std::size_t bytes, std::size_t offset) {
  if (offset > size_ || bytes > size_ - offset) {
    throw ShapeError("upload to a device buffer: expected at most " + std::to_string(size_) +
                     " bytes, found " + std::to_string(offset) + " + " + std::to_string(bytes));
  }
  check(cudaMemcpy(data_ + offset, from, bytes, cudaMemcpyHostToDevice), "take data");
  wait_for(nullptr);  // a copy from ordinary memory may return before it has arrived
}

void copy_from_device(void* to, const void* from, std::size_t bytes) {
  check(cudaDeviceSynchronize(), "finish its work");
  check(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "hand data out");
}

}  // namespace kvscope::gpu

// Device memory, streams and errors of the GPU component, for hosts that see no CUDA header.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/device_memory.hpp"
#include "core/base/error.hpp"

struct CUstream_st;  // cudaStream_t points to it

namespace kvscope::gpu {

/// The device or its driver refused; the sentence says what, found and what to do. Of memory that
/// does not suffice a DeviceMemoryError says so.
class DeviceError : public Error {
 public:
  using Error::Error;
};

/// A queue of work by its CUDA name: a Stream's, or one of another library (torch).
using StreamHandle = CUstream_st*;

/// Why no kernel of this component runs on that device, in one sentence; empty: they run.
std::string why_no_device(int device = 0);

/// What the thread's device is called, and what of its memory is free.
struct DeviceInfo {
  std::string name;
  std::size_t free_bytes = 0;
};
DeviceInfo device_info();

/// Memory that its owner can do without: where an allocation does not fit, let_go() is called and
/// the allocation tried once more. In any thread, also while other owners come and go.
class SpareMemory {
 public:
  explicit SpareMemory(std::function<void()> let_go);
  ~SpareMemory();
  SpareMemory(const SpareMemory&) = delete;
  SpareMemory& operator=(const SpareMemory&) = delete;
};

/// A queue of work with an owner. What is put into one returns before it is done.
class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator StreamHandle() const { return stream_; }
  /// Until all of it is done. Throws DeviceError if any of it failed.
  void wait() const;

 private:
  StreamHandle stream_ = nullptr;
};

/// Until all of a stream's work is done, as Stream::wait().
void wait_for(StreamHandle stream);
/// The same where an error is on its way already: says nothing about further ones.
void abandon(StreamHandle stream) noexcept;

/// Device memory with an owner; plain, never managed.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  /// Zeroed. `use` names it in the sentence of the DeviceMemoryError that says that it does not
  /// fit.
  DeviceBuffer(std::size_t bytes, std::string_view use);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  /// A copy that ends before it returns, for set-up and tests. Throws ShapeError past the end.
  void upload(const void* from, std::size_t bytes, std::size_t offset = 0);

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Copies n values from any device memory, after all streams are done.
void copy_from_device(void* to, const void* from, std::size_t bytes);
template <class T>
std::vector<T> read_device(const T* from, std::size_t n) {
  std::vector<T> values(n);
  copy_from_device(values.data(), from, n * sizeof(T));
  return values;
}

}  // namespace kvscope::gpu

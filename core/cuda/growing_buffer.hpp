// Device memory of changing size.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/cuda/transfer.hpp"

namespace kvscope::gpu {

/// Device memory that grows when more is asked for.
class GrowingBuffer {
 public:
  /// What it held is lost where it grows.
  template <class T>
  T* room(std::int64_t n, std::string_view use) {
    const auto bytes = static_cast<std::size_t>(n) * sizeof(T);
    if (buffer_.size() < bytes) {
      buffer_ = {};  // first: there may not be memory for both
      buffer_ = DeviceBuffer(bytes + bytes / 4, use);
    }
    return reinterpret_cast<T*>(buffer_.data());
  }
  /// Null for n = 0.
  template <class T>
  T* upload(const T* from, std::size_t n, std::string_view use, StreamHandle stream) {
    if (n == 0) return nullptr;
    T* const to = room<T>(static_cast<std::int64_t>(n), use);
    copy_to_device(to, from, n * sizeof(T), stream);
    return to;
  }

 private:
  DeviceBuffer buffer_;
};

}  // namespace kvscope::gpu

// A plan of device memory: arrays after each other, each at a multiple of 256 bytes.
#pragma once

#include <cstddef>

namespace kvscope::gpu {

/// The same calls of add() first give the size and then, from the memory's address, the arrays.
class Scratch {
 public:
  explicit Scratch(std::byte* base = nullptr) : base_(base) {}
  template <class T>
  T* add(std::size_t n) {
    std::byte* const at = base_ == nullptr ? nullptr : base_ + size_;
    size_ += (n * sizeof(T) + 255) / 256 * 256;
    return reinterpret_cast<T*>(at);
  }
  std::size_t size() const { return size_; }

 private:
  std::byte* base_;
  std::size_t size_ = 0;
};

}  // namespace kvscope::gpu

// A vector whose new elements keep whatever the memory holds: for arrays that threads fill right
// after they are made.
#pragma once

#include <new>
#include <utility>
#include <vector>

namespace kvscope {

template <class T>
struct NoInitAllocator : std::allocator<T> {
  template <class U>
  struct rebind {
    using other = NoInitAllocator<U>;
  };
  template <class U>
  void construct(U* place) noexcept {
    ::new (static_cast<void*>(place)) U;
  }
  template <class U, class... Args>
  void construct(U* place, Args&&... args) {
    ::new (static_cast<void*>(place)) U(std::forward<Args>(args)...);
  }
};

/// For numbers only: resize() leaves new elements unset.
template <class T>
using RawVector = std::vector<T, NoInitAllocator<T>>;

}  // namespace kvscope

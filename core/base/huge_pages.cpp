#include "core/base/huge_pages.hpp"

#include <cstdint>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace kvscope {

void prefer_huge_pages(void* begin, std::size_t n_bytes) {
#if defined(__linux__)
  constexpr std::uintptr_t kHugePage = 2 * 1024 * 1024;
  const auto first =
      (reinterpret_cast<std::uintptr_t>(begin) + kHugePage - 1) / kHugePage * kHugePage;
  const auto last = (reinterpret_cast<std::uintptr_t>(begin) + n_bytes) / kHugePage * kHugePage;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#else
  (void)begin, (void)n_bytes;
#endif
}

}  // namespace kvscope

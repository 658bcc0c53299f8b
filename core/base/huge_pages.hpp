// Large memory in large pages, where the system has them: fewer translations while a cache of
// keys is streamed.
#pragma once

#include <cstddef>

namespace kvscope {

/// Asks for huge pages for the whole ones among these bytes. A hint: without effect where the
/// system lacks them or the memory is small. For memory that is about to be filled as a whole.
void prefer_huge_pages(void* begin, std::size_t n_bytes);

}  // namespace kvscope

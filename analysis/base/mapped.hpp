// A list made of another, entry by entry.
#pragma once

#include <functional>
#include <vector>

namespace kvscope {

/// What `of` (a member, or a function) says of each entry, in the list's order, as T.
template <class T, class List, class Of>
std::vector<T> mapped(const List& list, const Of& of) {
  std::vector<T> out;
  for (const auto& entry : list) out.emplace_back(std::invoke(of, entry));
  return out;
}

}  // namespace kvscope

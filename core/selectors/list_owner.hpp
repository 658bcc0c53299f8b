// Whose a list is: how owners are named and how many of them a layer has.
#pragma once

#include <array>
#include <string_view>

#include "core/attention/selection.hpp"

namespace kvscope {

/// In sentences: "query head".
inline std::string_view words_for(ListOwner owner) {
  constexpr std::array<std::string_view, 3> kWords = {"query head", "KV head", "layer"};
  return kWords[static_cast<std::size_t>(owner)];
}

/// Lists that a layer has for one block of rows.
inline Index n_owners(ListOwner owner, Index n_q, Index n_kv) {
  return owner == ListOwner::q_head ? n_q : owner == ListOwner::kv_head ? n_kv : 1;
}

}  // namespace kvscope

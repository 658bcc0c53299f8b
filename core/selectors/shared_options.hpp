// Options that several methods have word for word, as initialisers of a member:
//
//   Index dense_layers_ = dense_layers_option(dense_layers_);
#pragma once

#include "core/base/fields.hpp"

namespace kvscope {

inline Index dense_layers_option(Index& member, Index n = 0) {
  return option(member, "dense-layers", n, "leading layers kept dense", at_least(0));
}

/// Of methods whose budget buys keys between the first and the latest ones.
inline Index n_sink_option(Index& member, Index n) {
  return option(member, "n-sink", n, "first tokens, always kept, on top of the budget",
                at_least(0));
}
inline Index n_recent_option(Index& member, Index n) {
  return option(member, "n-recent", n,
                "latest tokens before the call, always kept, on top of the budget", at_least(0));
}

/// Of evicting methods, whose budget counts them.
inline Index first_keys_option(Index& member) {
  return option(member, "n-sink", 4, "first keys that stay, inside the budget", at_least(0));
}
inline Index latest_keys_option(Index& member) {
  return option(member, "recent", 0, "latest keys that stay, inside the budget", at_least(0));
}

/// Of patterns.
inline Index first_tokens_option(Index& member) {
  return option(member, "n-sink", 4, "first tokens that are always kept", at_least(0));
}

inline Index page_size_option(Index& member) {
  return option(member, "page-size", 16, "tokens per page", in(1, 1 << 20));
}

inline Index k_means_seed_option(Index& member) {
  return option(member, "seed", 1, "names the random start of k-means", at_least(0));
}

}  // namespace kvscope

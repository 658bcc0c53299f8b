// A method's rule in numbers, for backends that choose keys where they lie instead of handing
// queries and keys to the host. Lists must be those that the method itself would make.
#pragma once

#include "core/base/index.hpp"

namespace kvscope {

struct NativeRule {
  enum class Method {
    everything,  // dense: every key that a query sees
    quoka,       // scope=past, everything but n_queries and eps as by default
    quest,       // of exact boxes, for one query
    streaming,   // the first n_sink keys and the latest budget - n_sink > 0 of each query
    best,        // the keys of largest exact attention; everything but what is named below as
                 // by default
    sparq,       // of several queries, or one that is no decode step; joins_rows and forces_own
  };
  /// As PageRule and PageOwner of core/selectors/page_lists.hpp.
  enum class Pages { eval, kernel, frontier, hub };
  enum class Owner { q_head, group_sum, group_max };

  Method method = Method::everything;
  Index budget = 0;      // in tokens
  Index n_queries = 16;  // quoka
  double eps = 1e-12;    // quoka
  Index page_size = 16;  // quest
  Pages pages = Pages::kernel;
  Owner owner = Owner::q_head;  // quest, best
  Index n_channels = 0;         // sparq: as channels_of of core/attention/head_share.hpp takes them
  double channel_share = 0.0;   // sparq
  Index n_sink = 0;             // streaming
  bool forces_own = false;      // best, sparq: keys before the call compete, its own come on top
  bool joins_rows = false;      // best, sparq: one list for all rows of the call (with group_sum)

  bool operator==(const NativeRule&) const = default;
};

}  // namespace kvscope

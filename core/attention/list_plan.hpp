// How a method makes its lists, as operations and numbers, for backends that choose keys where they
// lie instead of handing queries and keys to the host. A backend takes the plans that it has
// kernels for, which it knows by these fields alone; lists must be those that the method itself
// would make.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/index.hpp"

namespace kvscope {

struct ListPlan {
  /// What keys are kept by.
  enum class By {
    nothing,      // every key that a query sees
    place,        // the first n_sink keys and the latest budget - n_sink > 0 of each query
    attention,    // their softmax weights; per query head the products, which rank alike
    far_cosines,  // the largest cosine with the mean slots of the n_queries queries that are
                  // farthest from their head's mean (QuoKA)
    page_bounds,  // of pages: the bound of a query's products by the exact box of a page (Quest)
    channels,     // products with the mean query in its n_channels largest channels (SparQ)
  };
  /// As PageRule and PageOwner of core/selectors/page_lists.hpp.
  enum class Pages { eval, kernel, frontier, hub };
  enum class Owner { q_head, group_sum, group_max };

  By by = By::nothing;
  Index budget = 0;  // in tokens
  Owner owner = Owner::q_head;
  bool forces_own = false;  // keys before the call compete, its own come on top
  bool joins_rows = false;  // one list for all rows of the call (with group_sum and forces_own)
  Index n_sink = 0;         // by place
  Index n_queries = 16;     // by far_cosines
  double eps = 1e-12;       // the same
  Index page_size = 16;     // by page_bounds
  Pages pages = Pages::kernel;
  Index n_channels = 0;        // by channels: as channels_of of core/attention/head_share.hpp
  double channel_share = 0.0;  // takes them

  bool operator==(const ListPlan&) const = default;
};

/// How many keys the lists of a layer's call keep.
struct ListCounts {
  std::vector<std::uint64_t> attended;  // [n_q] by the rows of a query head, each row for itself
  std::vector<std::uint64_t> loaded;    // [n_kv] by any row of a KV head's group
};

}  // namespace kvscope

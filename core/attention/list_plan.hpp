// How a method makes its lists, as operations and numbers, for backends that choose keys where they
// lie instead of handing queries and keys to the host. A backend takes the plans that it has
// kernels for, which it knows by these fields alone; lists must be those that the method itself
// would make.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/base/index.hpp"

namespace kvscope {

struct ListPlan {
  /// What keys are kept by.
  enum class By {
    nothing,      // every key that a query sees
    attention,    // the weights of each row in each query head, in lists of their own
    far_cosines,  // the largest cosine with the mean slots of the n_queries queries that are
                  // farthest from their head's mean (QuoKA)
    page_bounds,  // of pages: the bound of a query's products by the exact box of a page (Quest)
  };
  /// How many pages a budget of tokens buys in decode, and whether the last page has to compete.
  enum class Pages {
    eval,      // Quest's accuracy tables: max(3, tokens / page), every page competes, the last too
    kernel,    // Quest's kernels: tokens / page including the last page, which is always kept
    frontier,  // sparse-frontier: tokens / page, and the last page on top
    hub,       // sparse-attention-hub: tokens / page rounded up, every page competes
  };
  /// Who owns a list, and how a group's scores become one.
  enum class Owner { q_head, group_sum, group_max };

  By by = By::nothing;
  Index budget = 0;  // in tokens
  Owner owner = Owner::q_head;
  /// Keys before the call compete, its own come on top; by far_cosines always so. By far_cosines
  /// and page_bounds one list per KV head serves all rows of the call then; by pages whole ones
  /// compete, and the page that the call's first token cuts comes on top too.
  bool forces_own = false;
  /// By attention, without a budget: every key of at least this weight, or the fewest that hold
  /// this share (equal weights: the earlier key).
  double least_weight = 0.0;
  double mass = 0.0;
  Index n_queries = 16;  // by far_cosines
  double eps = 1e-12;    // the same
  Index page_size = 16;  // by pages
  Pages pages = Pages::kernel;

  bool has_budget() const { return least_weight == 0.0 && mass == 0.0; }
  bool operator==(const ListPlan&) const = default;
};

/// Pages that `budget` tokens buy of n_pages with n_keys keys, the last page included where the
/// rule says so: all of them where the budget covers the keys (the published quotients of whole
/// pages would drop a page there whenever the last one is not full). T: Index, or int on a device.
template <class T>
constexpr T pages_kept(ListPlan::Pages rule, T budget, T page_size, T n_keys, T n_pages) {
  const T whole = budget / page_size;
  if (budget >= n_keys) return n_pages;  // whole and partial pages together may exceed the quotient
  switch (rule) {
    case ListPlan::Pages::eval:
      return std::min(std::max(T{3}, whole), n_pages);
    case ListPlan::Pages::kernel:
      return std::min(std::max(T{1}, whole), n_pages);
    case ListPlan::Pages::frontier:
      return whole;
    case ListPlan::Pages::hub:
      break;
  }
  return std::max(T{1}, (budget + page_size - 1) / page_size);
}

/// How many keys the lists of a layer's call keep.
struct ListCounts {
  std::vector<std::uint64_t> attended;  // [n_q] by the rows of a query head, each row for itself
  std::vector<std::uint64_t> loaded;    // [n_kv] by any row of a KV head's group
};

}  // namespace kvscope

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
    nothing,    // every key that a query sees
    place,      // the first n_sink keys and the latest budget - n_sink > 0 of each query
    slashes,    // the n_columns keys and the n_slashes distances from a query for which the softmax
                // weights of the call's last n_voters queries are largest (MInference)
    attention,  // their softmax weights; per query head the products, which rank alike
    far_cosines,     // the largest cosine with the mean slots of the n_queries queries that are
                     // farthest from their head's mean (QuoKA)
    page_attention,  // of pages: what their keys' softmax weights add up to
    page_bounds,     // of pages: the bound of a query's products by the exact box of a page (Quest)
    channels,        // products with the mean query in its n_channels largest channels (SparQ)
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
  /// By attention, without a budget, in lists per row and query head: every key of at least this
  /// weight, or the fewest that hold this share (equal weights: the earlier key).
  double least_weight = 0.0;
  double mass = 0.0;
  Owner owner = Owner::q_head;
  /// Keys before the call compete, its own come on top; by pages whole ones before it, and the page
  /// that its first token cuts comes on top too.
  bool forces_own = false;
  bool joins_rows = false;  // one list for all rows of the call (with group_sum and forces_own)
  Index n_sink = 0;         // by place; by slashes columns that come before all others
  Index n_queries = 16;     // by far_cosines
  double eps = 1e-12;       // the same
  Index page_size = 16;     // by pages
  Pages pages = Pages::kernel;
  Index n_channels = 0;        // by channels: as channels_of of core/attention/head_share.hpp
  double channel_share = 0.0;  // takes them
  Index n_latest = 0;          // the same, in steps: of the budget, the latest keys before it;
                               // by slashes the smallest distances, before all others
  bool adds_mean = false;      // the same: the mean value has the share that the list lacks

  Index n_voters = 64;  // by slashes
  Index n_columns = 0;
  Index n_slashes = 0;

  bool has_budget() const { return least_weight == 0.0 && mass == 0.0 && by != By::slashes; }
  bool takes_pages() const { return by == By::page_attention || by == By::page_bounds; }
  bool operator==(const ListPlan&) const = default;
};

/// True if a key that a query keeps is kept by rule, whatever it scored; for lists of keys. begin:
/// where the call begins.
bool is_kept_by_rule(const ListPlan& plan, Index key, Index query, Index begin);

/// Pages that `budget` tokens buy of n_pages with n_keys keys, the last page included where the
/// rule says so: all of them where the budget covers the keys (the published quotients of whole
/// pages would drop a page there whenever the last one is not full).
Index pages_kept(ListPlan::Pages rule, Index budget, Index page_size, Index n_keys, Index n_pages);

/// How many keys before a call that begins there the one list of a KV head keeps; for plans that
/// join rows.
Index kept_before(const ListPlan& plan, Index pos_begin);

/// How many keys the lists of a layer's call keep.
struct ListCounts {
  std::vector<std::uint64_t> attended;  // [n_q] by the rows of a query head, each row for itself
  std::vector<std::uint64_t> loaded;    // [n_kv] by any row of a KV head's group
};

}  // namespace kvscope

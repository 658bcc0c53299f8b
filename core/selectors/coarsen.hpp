// The restrictions of an engine on a method's choice: one list for more heads, whole pages, scores
// of few bits, one mean query per KV head. A wrapper around any method that gives a score per key
// or page (SelectionTrace).
//
// The method answers first. Its scores are then rounded to a type, added up over the heads that are
// to share a list, the largest of a page's is taken, and the best pages are kept, in their order,
// while their keys fit into what the method's own longest list had earned by score (at least one
// page). What the method forced (the running chunk, its last page) stays as it is, so that a page
// which holds some of that counts with its other keys alone. Written
// "quest+coarsen:owner=layer,page=64" (core/selectors/wrappers.hpp).
#pragma once

#include <memory>

#include "core/attention/rounded_scores.hpp"
#include "core/base/fields.hpp"
#include "core/selectors/selector.hpp"

namespace kvscope {

enum class CoarseOwner { own, q_head, kv_head, layer };
enum class CoarseQuery { own, mean };
/// Which of equal scores at the cut comes in: all orders are legal in an engine, ours is the first.
enum class TieOrder { first, last };

struct CoarsenOptions {
  CoarseOwner owner =
      option(owner, "owner", CoarseOwner::own,
             "who shares a list: own (as the method has it), q_head, kv_head or layer (all heads)");
  Index page = option(page, "page", 1,
                      "tokens of the pages that lists are made of; 1: as the method has them",
                      in(1, 1 << 20));
  CoarseQuery query = option(query, "query", CoarseQuery::own,
                             "mean: the mean query of a KV head's group asks instead of each");
  ScoreType scores = option(scores, "scores", ScoreType::f64,
                            "number type of the ranked scores; f64: as the method makes them");
  TieOrder ties = option(ties, "ties", TieOrder::first,
                         "equal scores at the cut: the first or the last position comes in");
};

/// Throws ConfigError where the method cannot be coarsened so: it gives no scores
/// (Selector::why_no_scores), its lists are shared by more heads or made of larger pages already,
/// or votes of attention weights cannot come from a mean query.
std::unique_ptr<Selector> make_coarsen(const CoarsenOptions& options,
                                       std::unique_ptr<Selector> method);

}  // namespace kvscope

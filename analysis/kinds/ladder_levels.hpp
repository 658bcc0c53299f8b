// The levels between a method as its paper defines it and what a serving engine executes: each one
// names a restriction and the wrapper that makes a method take it (core/selectors/coarsen.hpp,
// core/selectors/every.hpp).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/selectors/method_spec.hpp"

namespace kvscope {

struct LadderLevel {
  std::string restriction;  // "list owner", "granularity", "steps", "scores", "query", "rows"
  std::string name;         // "one list for all heads"
  MethodSpec alone;         // the method with this restriction; empty: it cannot take it
  std::string refused;      // why not; empty: it can
  /// With those of the levels before it, of each kind the last one; empty: it cannot.
  MethodSpec together;
  std::string together_refused;
  /// On the levels of scores: `alone` with equal scores in the other order; empty: it cannot.
  MethodSpec other_order;
  bool is_chunk = false;           // one list for a chunk's queries instead of one for a query
  bool is_together_chunk = false;  // the same for `together`
};

/// Level by level, the method as it is first: 17 levels. budget: empty for methods that take none.
/// every: steps that one choice serves on the level of steps. chunk: queries of the last level, for
/// its name.
std::vector<LadderLevel> ladder_levels(const MethodSpec& method,
                                       const std::optional<Budget>& budget, Index every,
                                       Index chunk);

}  // namespace kvscope

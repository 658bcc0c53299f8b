// The rungs between a method as its paper defines it and what a serving engine executes: each one
// names a restriction and the wrapper that makes a method take it (core/selectors/coarsen.hpp,
// core/selectors/every.hpp).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/selectors/method_spec.hpp"

namespace kvscope {

struct LadderRung {
  std::string restriction;  // "list owner", "granularity", "steps", "scores", "query", "rows"
  std::string name;         // "one list for all heads"
  MethodSpec alone;         // the method with this restriction; empty: it cannot take it
  std::string refused;      // why not; empty: it can
  /// With those of the rungs before it, of each kind the last one; empty: it cannot.
  MethodSpec together;
  std::string together_refused;
  /// On the rungs of scores: `alone` with equal scores in the other order; empty: it cannot.
  MethodSpec other_order;
  bool is_chunk = false;           // one list for a chunk's queries instead of one for a query
  bool is_together_chunk = false;  // the same for `together`
};

/// Rung by rung, the method as it is first: 17 rungs. budget: empty for methods that take none.
/// every: steps that one choice serves on the rung of steps. chunk: queries of the last rung, for
/// its name.
std::vector<LadderRung> ladder_rungs(const MethodSpec& method, const std::optional<Budget>& budget,
                                     Index every, Index chunk);

}  // namespace kvscope

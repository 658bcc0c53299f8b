// Which forward calls of a recorded sequence a replay looks at.
#pragma once

#include <vector>

#include "core/selectors/selector.hpp"
#include "core/trace/info.hpp"

namespace kvscope {

/// How the calls are cut out of the trace.
struct CallPlan {
  Phase phase = Phase::prefill;
  Index chunk = 128;  // B_CP: queries of a prefill call
  Index steps = 16;   // decode, verify: calls measured, evenly spaced
  Index drafts = 4;   // verify: tokens verified at once
  /// The most positions between two choices of a measured method (SelectorCaps::steps_per_choice):
  /// measured calls come in runs in which it chooses as often as over all.
  Index period = 1;
  /// These calls instead, ascending and apart, wherever the prompt ends; empty = as above.
  std::vector<TokenRange> at;
};

/// Where the prompt ends for these calls: decode and verify take the later half of the prompt as
/// decoded where a trace has decoded nothing (or less than one verification). Of calls that are
/// named one by one, the first one is the first after the prompt.
Index prompt_end(const TraceInfo& info, const CallPlan& plan);

/// Calls in order, without overlap. prefill: chunks of the whole prompt. decode: single positions
/// from prompt_end on. verify: blocks of `drafts` positions likewise. Throws ConfigError if the
/// trace is too short for one, or if calls that are named do not lie in it in order.
std::vector<TokenRange> plan_calls(const TraceInfo& info, const CallPlan& plan,
                                   const std::string& where);

}  // namespace kvscope

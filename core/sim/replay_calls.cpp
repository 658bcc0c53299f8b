#include "core/sim/replay_calls.hpp"

#include <algorithm>
#include <numeric>

#include "core/base/error.hpp"
#include "core/base/evenly_spaced.hpp"

namespace kvscope {

namespace {

Index call_size(const CallPlan& plan) {
  return plan.phase == Phase::decode ? 1 : plan.drafts;
}

}  // namespace

Index prompt_end(const TraceInfo& info, const CallPlan& plan) {
  const Index n_prompt = std::clamp<Index>(info.n_prompt, 0, info.n_tokens);
  if (!plan.at.empty()) return std::max<Index>(1, plan.at.front().begin);
  if (plan.phase == Phase::prefill) return n_prompt;
  const bool has_decoded = info.n_tokens - n_prompt >= call_size(plan);
  return std::max<Index>(1, has_decoded ? n_prompt : n_prompt / 2);
}

std::vector<TokenRange> plan_calls(const TraceInfo& info, const CallPlan& plan,
                                   const std::string& where) {
  if (plan.chunk < 1 || plan.steps < 1 || plan.drafts < 1) {
    throw ConfigError(
        "replay: expected a chunk, steps and drafts of at least 1, found {}, {} and {}", plan.chunk,
        plan.steps, plan.drafts);
  }
  Index end = 0;
  for (const TokenRange& call : plan.at) {
    if (call.begin < end || call.end <= call.begin || call.end > info.n_tokens) {
      throw ConfigError("{}: expected calls in order within {} tokens, found [{}, {}) after {}",
                        where, info.n_tokens, call.begin, call.end, end);
    }
    end = call.end;
  }
  if (!plan.at.empty()) return plan.at;
  std::vector<TokenRange> calls;
  const Index n_prompt = std::clamp<Index>(info.n_prompt, 0, info.n_tokens);
  if (plan.phase == Phase::prefill) {
    for (Index begin = 0; begin < n_prompt; begin += plan.chunk) {
      calls.push_back({begin, std::min(n_prompt, begin + plan.chunk)});
    }
  } else {
    const Index size = call_size(plan);
    const Index first = prompt_end(info, plan);
    const Index last = info.n_tokens - n_prompt >= size ? info.n_tokens : n_prompt;
    const Index n_blocks = (last - first) / size;  // blocks end at `last`
    const Index in_run = std::min(plan.period / std::gcd(plan.period, size), n_blocks);
    const Index n_runs = in_run > 0 ? n_blocks / in_run : 0;
    for (Index run :
         evenly_spaced(0, n_runs, std::max<Index>(1, plan.steps / std::max<Index>(1, in_run)))) {
      for (Index block = run * in_run; block < (run + 1) * in_run; ++block) {
        const Index block_end = last - (n_runs * in_run - 1 - block) * size;
        calls.push_back({block_end - size, block_end});
      }
    }
  }
  if (calls.empty()) {
    throw ConfigError("{}: {} prompt and {} decoded tokens are too few for a {} call", where,
                      n_prompt, info.n_tokens - n_prompt, enum_name(plan.phase));
  }
  return calls;
}

}  // namespace kvscope

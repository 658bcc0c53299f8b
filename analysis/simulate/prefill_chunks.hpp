// A prefill that can be stopped: chunk by chunk, with a look at the stop before each.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <stop_token>

#include "analysis/base/analysis.hpp"
#include "core/model/tokenizer.hpp"

namespace kvscope {

/// sequence.prefill(tokens, chunk, mode...) as one call per chunk, which has the same numbers.
/// Throws Interrupted on a stop, and what prefill throws.
template <class Sequence, class... Mode>
void prefill_chunks(Sequence& sequence, std::span<const TokenId> tokens, Index chunk,
                    const std::stop_token& stop, Mode... mode) {
  const std::size_t step = static_cast<std::size_t>(std::max<Index>(chunk, 1));
  for (std::size_t at = 0; at < tokens.size(); at += step) {
    check_stop(stop, "simulate");
    sequence.prefill(tokens.subspan(at, std::min(step, tokens.size() - at)), chunk, mode...);
  }
}

}  // namespace kvscope

#include "analysis/simulate/dense_prefix.hpp"

#include "analysis/simulate/prefill_chunks.hpp"

namespace kvscope {

DensePrefix::DensePrefix(const SimulationSetup& setup, std::span<const TokenId> tokens,
                         ThreadPool& pool, const std::stop_token& stop)
    : tokens_(tokens.begin(), tokens.end()), chunk_(setup.options.chunk) {
  if (tokens.empty()) return;
  LiveSequence dense(*setup.models.verifier, {}, static_cast<Index>(tokens.size()), pool);
  prefill_chunks(dense, tokens, chunk_, stop, PrefillMode::dense);
  store_ = std::move(dense).take_cache();
}

void DensePrefix::begin(LiveSequence& live, const std::stop_token& stop) const {
  if (tokens_.empty()) return;
  if (live.shares_dense_prefill()) {
    live.adopt(*store_);
  } else {
    prefill_chunks(live, tokens_, chunk_, stop, PrefillMode::dense);
  }
  live.clear_stats();
}

}  // namespace kvscope

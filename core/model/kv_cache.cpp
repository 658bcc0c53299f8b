#include "core/model/kv_cache.hpp"

#include <fmt/format.h>

#include "core/base/error.hpp"

namespace kvscope {

KvCache::KvCache(const ModelConfig& config, Index capacity) : capacity_(capacity) {
  if (capacity < 1 || capacity > config.max_positions) {
    throw ConfigError(fmt::format("context of {} tokens: expected 1 to {} (max_position_embeddings of the model)",
                                  capacity, config.max_positions));
  }
  k_.reserve(static_cast<std::size_t>(config.n_layers));
  v_.reserve(static_cast<std::size_t>(config.n_layers));
  for (Index layer = 0; layer < config.n_layers; ++layer) {
    k_.push_back(Tensor<float>::uninitialized({config.n_kv, capacity, config.d_head}));
    v_.push_back(Tensor<float>::uninitialized({config.n_kv, capacity, config.d_head}));
  }
}

void KvCache::advance(Index n) { n_tokens_ += n; }

void KvCache::truncate(Index n_tokens) {
  if (n_tokens < 0 || n_tokens > n_tokens_) {
    throw ConfigError(fmt::format("cannot cut the cache to {} tokens: it holds {}", n_tokens, n_tokens_));
  }
  n_tokens_ = n_tokens;
}

}  // namespace kvscope

#include "core/model/kv_cache.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/huge_pages.hpp"

namespace kvscope {

Tensor<float> make_cache_rows(Shape shape) {
  auto rows = Tensor<float>::uninitialized(shape);
  prefer_huge_pages(rows.data(), rows.flat().size_bytes());
  return rows;
}

KvCache::KvCache(const ModelConfig& config, Index capacity) : capacity_(capacity) {
  if (capacity < 1 || capacity > config.max_positions) {
    throw ConfigError(fmt::format("context of {} tokens: expected 1 to {} (max_position_embeddings of the model)",
                                  capacity, config.max_positions));
  }
  k_.reserve(static_cast<std::size_t>(config.n_layers));
  v_.reserve(static_cast<std::size_t>(config.n_layers));
  for (Index layer = 0; layer < config.n_layers; ++layer) {
    k_.push_back(make_cache_rows({config.n_kv, capacity, config.d_head}));
    v_.push_back(make_cache_rows({config.n_kv, capacity, config.d_head}));
  }
}

void KvCache::advance(Index n) { n_tokens_ += n; }

void KvCache::truncate(Index n_tokens) {
  if (n_tokens < 0 || n_tokens > n_tokens_) {
    throw ConfigError(fmt::format("cannot cut the cache to {} tokens: it holds {}", n_tokens, n_tokens_));
  }
  n_tokens_ = n_tokens;
}

void KvCache::copy_from(const KvCache& other) {
  if (other.n_tokens_ > capacity_ || other.n_layers() != n_layers()) {
    throw ConfigError(fmt::format("cannot copy a cache of {} layers and {} tokens into one of {} layers and room for {}",
                                  other.n_layers(), other.n_tokens_, n_layers(), capacity_));
  }
  const auto copy = [&](const Tensor<float>& from, Tensor<float>& to) {
    for (Index head = 0; head < from.dim(0); ++head) {
      std::copy_n(from.sub(head).data(), other.n_tokens_ * from.dim(2), to.sub(head).data());
    }
  };
  for (std::size_t layer = 0; layer < k_.size(); ++layer) {
    copy(other.k_[layer], k_[layer]);
    copy(other.v_[layer], v_[layer]);
  }
  n_tokens_ = other.n_tokens_;
}

}  // namespace kvscope

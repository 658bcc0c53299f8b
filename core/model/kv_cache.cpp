#include "core/model/kv_cache.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/huge_pages.hpp"
#include "core/tensor/dtype.hpp"

namespace kvscope {

Tensor<float> make_cache_rows(Shape shape) {
  auto rows = Tensor<float>::uninitialized(shape);
  prefer_huge_pages(rows.data(), rows.flat().size_bytes());
  return rows;
}

DType kv_dtype_from_name(std::string_view name) {
  if (name == "f32") return DType::f32;
  if (name == "bf16") return DType::bf16;
  throw ConfigError("keys and values as \"{}\": expected f32 or bf16", name);
}

KvStore::KvStore(const ModelConfig& config, Index capacity, DType dtype)
    : KvStore(config.n_layers, capacity, dtype) {
  if (capacity < 1 || capacity > config.max_positions) {
    throw ConfigError(
        "context of {} tokens: expected 1 to {} (max_position_embeddings of the model)", capacity,
        config.max_positions);
  }
}

void KvStore::truncate(Index n_tokens) {
  if (n_tokens < 0 || n_tokens > n_tokens_)
    throw ConfigError("cannot cut the cache to {} tokens: it holds {}", n_tokens, n_tokens_);
  n_tokens_ = n_tokens;
}

KvCache::KvCache(const ModelConfig& config, Index capacity, DType dtype)
    : KvStore(config, capacity, dtype) {
  for (Index layer = 0; layer < config.n_layers; ++layer) {
    const Index owner = config.shape(layer).keys_of;
    places_.push_back(static_cast<std::size_t>(owner < 0 ? layer : owner));
  }
  for (auto* all : {&k_, &v_}) {
    all->resize(places_.size());
    for (Index layer = 0; layer < config.n_layers; ++layer) {
      const LayerShape heads = config.shape(layer);
      if (heads.keys_of >= 0) continue;
      const Shape shape{heads.n_kv, capacity, heads.d_head};
      Rows& rows = at(*all, layer);
      if (dtype == DType::bf16) {
        rows.halves = Tensor<std::uint16_t>::uninitialized(shape);
        prefer_huge_pages(rows.halves.data(), rows.halves.flat().size_bytes());
      } else {
        rows.floats = make_cache_rows(shape);
      }
    }
  }
}

TensorView<std::uint16_t> KvCache::Rows::halves_from(Index pos_begin) {
  n_widened = std::min(n_widened, pos_begin);
  return halves.view();
}

TensorView<const float> KvCache::Rows::host(Index begin, Index end) const {
  if (halves.count() > 0 && n_widened < end) {
    if (floats.count() == 0) floats = make_cache_rows(halves.shape());
    for (Index head = 0; head < halves.dim(0); ++head) {
      to_float(DType::bf16, &halves(head, n_widened, Index{0}), &floats(head, n_widened, Index{0}),
               static_cast<std::size_t>((end - n_widened) * halves.dim(2)));
    }
    n_widened = end;
  }
  return std::as_const(floats).view().range(1, begin, end);
}

void KvCache::Rows::copy_from(TensorView<const float> from) {
  const Index n = from.dim(1);
  for (Index head = 0; head < from.dim(0); ++head) {
    for (Index pos = 0; pos < n; ++pos) {
      const auto row = from.sub(head).row(pos);
      if (halves.count() > 0) {
        from_float(row.data(), DType::bf16, &halves(head, pos, Index{0}), row.size());
      } else {
        std::copy(row.begin(), row.end(), &floats(head, pos, Index{0}));
      }
    }
  }
  n_widened = 0;
}

void KvCache::Rows::copy_from(TensorView<const std::uint16_t> from, Index n_tokens) {
  for (Index head = 0; head < from.dim(0); ++head) {
    std::copy_n(from.sub(head).data(), n_tokens * from.dim(2), halves.sub(head).data());
  }
  n_widened = 0;
}

void KvCache::copy_from(const KvStore& other) {
  if (other.n_tokens() > capacity_ || other.n_layers() != n_layers()) {
    throw ConfigError(
        "cannot copy a cache of {} layers and {} tokens into one of {} layers and room for {}",
        other.n_layers(), other.n_tokens(), n_layers(), capacity_);
  }
  const auto* cache = dynamic_cast<const KvCache*>(&other);
  const bool has_same_halves =
      cache != nullptr && cache->dtype() == DType::bf16 && dtype_ == DType::bf16;
  for (Index layer = 0; layer < n_layers(); ++layer) {
    if (static_cast<Index>(place(layer)) != layer) continue;
    if (has_same_halves) {
      at(k_, layer).copy_from(cache->k_halves(layer), other.n_tokens());
      at(v_, layer).copy_from(cache->v_halves(layer), other.n_tokens());
      continue;
    }
    at(k_, layer).copy_from(other.host_k(layer, 0, other.n_tokens()));
    at(v_, layer).copy_from(other.host_v(layer, 0, other.n_tokens()));
  }
  n_tokens_ = other.n_tokens();
}

}  // namespace kvscope

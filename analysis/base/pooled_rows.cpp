#include "analysis/base/pooled_rows.hpp"

#include <algorithm>

#include "core/base/nan.hpp"

namespace kvscope {

PooledRows::PooledRows(Index n_rows, Index n_cells, Index block, MapPooling pooling)
    : width_(static_cast<std::size_t>(n_cells)),
      block_(block),
      pooling_(pooling),
      values_(static_cast<std::size_t>(n_rows) * width_, 0.0),
      counts_(values_.size(), 0.0) {}

void PooledRows::clear() {
  std::ranges::fill(values_, 0.0);
  std::ranges::fill(counts_, 0.0);
}

void PooledRows::put(Index i, std::span<const double> weights, TokenRange visible) {
  const std::size_t first = static_cast<std::size_t>(i) * width_;
  for (Index key = visible.begin; key < visible.end; ++key) {
    const double p = weights[static_cast<std::size_t>(key - visible.begin)];
    const std::size_t cell = first + static_cast<std::size_t>(key / block_);
    values_[cell] = pooling_ == MapPooling::mean ? values_[cell] + p : std::max(values_[cell], p);
    counts_[cell] += 1.0;
  }
}

void PooledRows::join(Index first, Index last, std::span<float> cells) const {
  for (std::size_t c = 0; c < width_; ++c) {
    double value = 0.0;
    double count = 0.0;
    for (auto i = static_cast<std::size_t>(first); i < static_cast<std::size_t>(last); ++i) {
      const double v = values_[i * width_ + c];
      value = pooling_ == MapPooling::mean ? value + v : std::max(value, v);
      count += counts_[i * width_ + c];
    }
    if (pooling_ == MapPooling::mean && count > 0.0) value /= count;
    cells[c] = count > 0.0 ? static_cast<float>(value) : kNanF;
  }
}

}  // namespace kvscope

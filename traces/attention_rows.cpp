#include "traces/attention_rows.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/attention/visible.hpp"

namespace kvscope {

namespace {

/// In a fixed order of partial sums.
float dot(const float* a, const float* b, Index n) {
  constexpr Index kLanes = 16;
  float lanes[kLanes] = {};
  Index i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (Index lane = 0; lane < kLanes; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  }
  for (Index lane = 0; i < n; ++i, ++lane) lanes[lane] += a[i] * b[i];
  for (Index half = kLanes / 2; half > 0; half /= 2) {
    for (Index lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

}  // namespace

void attention_row(std::span<const float> q, TensorView<const float> keys, Index pos,
                   std::optional<Index> window, const ScoreRule& rule, float lse,
                   std::span<float> probs) {
  const auto scale = static_cast<float>(rule.scale);
  const auto cap = static_cast<float>(rule.cap);
  std::fill(probs.begin(), probs.end(), 0.0f);
  for (Index key = visible_keys(pos, window).begin; key <= pos; ++key) {
    const float raw = scale * dot(q.data(), keys.row(key).data(), static_cast<Index>(q.size()));
    const float score = rule.cap > 0.0 ? cap * std::tanh(raw / cap) : raw;
    probs[static_cast<std::size_t>(key)] = std::exp(score - lse);
  }
}

void largest_entries(std::span<const float> probs, Index begin, Index end,
                     std::vector<std::int32_t>& order, std::span<std::int32_t> pos,
                     std::span<float> prob) {
  order.resize(static_cast<std::size_t>(end - begin));
  std::iota(order.begin(), order.end(), static_cast<std::int32_t>(begin));
  const std::size_t n = std::min(order.size(), pos.size());
  const auto before = [&](std::int32_t a, std::int32_t b) {
    const float pa = probs[static_cast<std::size_t>(a)];
    const float pb = probs[static_cast<std::size_t>(b)];
    return pa != pb ? pa > pb : a < b;
  };
  const auto middle = order.begin() + static_cast<std::ptrdiff_t>(n);
  if (middle != order.end()) std::nth_element(order.begin(), middle, order.end(), before);
  std::sort(order.begin(), middle, before);
  for (std::size_t i = 0; i < pos.size(); ++i) {
    pos[i] = i < n ? order[i] : -1;
    prob[i] = i < n ? probs[static_cast<std::size_t>(order[i])] : 0.0f;
  }
}

}  // namespace kvscope

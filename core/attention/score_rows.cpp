#include "core/attention/score_rows.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

namespace kvscope {

KeyTable::KeyTable(TensorView<const float> k)
    : n_keys_(k.dim(0)),
      d_head_(k.dim(1)),
      panels_(Shape{(k.dim(0) + kPanelKeys - 1) / kPanelKeys, k.dim(1), kPanelKeys}) {
  for (Index t = 0; t < n_keys_; ++t) {
    const auto key = k.row(t);
    double* out = panels_.data() + (t / kPanelKeys) * d_head_ * kPanelKeys + t % kPanelKeys;
    for (Index c = 0; c < d_head_; ++c) {
      out[c * kPanelKeys] = static_cast<double>(key[static_cast<std::size_t>(c)]);
    }
  }
}

void ScoreRows::compute(std::span<const double> q, Index n_rows, const KeyTable& keys,
                        TokenRange range) {
  assert(range.begin >= 0 && range.begin <= range.end && range.end <= keys.n_keys());
  assert(static_cast<Index>(q.size()) == n_rows * keys.d_head());
  const Index first_panel = range.begin / kPanelKeys;
  const Index last_panel = (range.end + kPanelKeys - 1) / kPanelKeys;
  const Index n_panels = std::max<Index>(last_panel - first_panel, 0);
  first_key_ = first_panel * kPanelKeys;
  stride_ = n_panels * kPanelKeys;
  const auto needed = static_cast<std::size_t>(n_rows * stride_);
  if (scores_.size() < needed) scores_.resize(needed);
  if (n_panels > 0) {
    panel_dots(q.data(), n_rows, keys.panel(first_panel), n_panels, keys.d_head(), scores_.data(),
               stride_);
  }
}

std::span<double> ScoreRows::row(Index r, TokenRange keys) {
  assert(keys.begin >= first_key_ && keys.end <= first_key_ + stride_);
  return {scores_.data() + r * stride_ + (keys.begin - first_key_),
          static_cast<std::size_t>(keys.size())};
}

std::vector<double> widened(std::span<const float> x, double factor) {
  std::vector<double> out(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) out[i] = factor * static_cast<double>(x[i]);
  return out;
}

double norm_of(std::span<const float> x) {
  double sum = 0.0;
  for (float value : x) sum += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(sum);
}

double norm_of(std::span<const double> x) {
  double sum = 0.0;
  for (double value : x) sum += value * value;
  return std::sqrt(sum);
}

double log_sum_exp(std::span<const double> x) {
  if (x.empty()) return -std::numeric_limits<double>::infinity();
  const double shift = max_of(x);
  return shift + std::log(exp_sums(x, shift).sum);
}

double softmax_in_place(std::span<double> x, std::optional<double> sink_logit) {
  if (x.empty()) return sink_logit.value_or(-std::numeric_limits<double>::infinity());
  const double shift = sink_logit ? std::max(max_of(x), *sink_logit) : max_of(x);
  double sum = exp_row(x, shift, x).sum;
  if (sink_logit) sum += std::exp(*sink_logit - shift);
  const double inverse = 1.0 / sum;
  for (double& value : x) value *= inverse;
  return shift + std::log(sum);
}

}  // namespace kvscope

#include "core/sim/metrics.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/attention/score_rows.hpp"
#include "core/attention/topk.hpp"

namespace kvscope {

namespace {

/// Below this a division by the mass loses digits: weights are then made from the scores.
constexpr double kTinyMass = 1e-200;

void add_value(std::span<const float> v, double weight, std::vector<double>& out) {
  for (std::size_t c = 0; c < out.size(); ++c) out[c] += weight * static_cast<double>(v[c]);
}

double distance(std::span<const double> a, std::span<const double> b) {
  double sum = 0.0;
  for (std::size_t c = 0; c < a.size(); ++c) sum += (a[c] - b[c]) * (a[c] - b[c]);
  return std::sqrt(sum);
}

}  // namespace

std::size_t age_bin(Index age) {
  return std::min<std::size_t>(std::bit_width(static_cast<std::uint64_t>(age)), kAgeBins - 1);
}

void DenseRow::prepare(std::span<const double> scores, TokenRange visible,
                       TensorView<const float> v, Index n_ranked, std::optional<double> sink) {
  visible_ = visible;
  v_ = v;
  const auto n = static_cast<Index>(scores.size());
  n_ranked_ = static_cast<std::int32_t>(std::min(n, std::max<Index>(n_ranked, 10)));
  rank_.assign(scores.size(), n_ranked_);
  std::int32_t next = 0;
  for (Index best : top_k(scores, n_ranked_)) rank_[static_cast<std::size_t>(best)] = next++;
  scores_.assign(scores.begin(), scores.end());
  probs_.assign(scores.begin(), scores.end());
  const double lse = softmax_in_place(probs_, sink);
  sink_ = sink;
  sink_prob_ = sink ? std::exp(*sink - lse) : 0.0;
  keys_prob_ = sink ? sum_of(probs_) : 1.0;
  output_.assign(static_cast<std::size_t>(v.dim(1)), 0.0);
  for (Index t = 0; t < n; ++t)
    add_value(v.row(visible.begin + t), probs_[static_cast<std::size_t>(t)], output_);
  output_norm_ = norm_of(output_);
}

std::vector<double> DenseRow::list_output(std::span<const KeyPos> keys, double mass) const {
  std::vector<double> y(output_.size(), 0.0);
  if (mass + sink_prob_ >= kTinyMass) {
    const double total = mass + sink_prob_;
    for (KeyPos key : keys)
      add_value(v_.row(key), probs_[static_cast<std::size_t>(key - visible_.begin)] / total, y);
    return y;
  }
  std::vector<double> weights;
  for (KeyPos key : keys)
    weights.push_back(scores_[static_cast<std::size_t>(key - visible_.begin)]);
  softmax_in_place(weights, sink_);
  for (std::size_t i = 0; i < keys.size(); ++i) add_value(v_.row(keys[i]), weights[i], y);
  return y;
}

RowQuality DenseRow::compare(std::span<const KeyPos> keys, Index k, Index n_sink,
                             const RowMix& mix) const {
  RowQuality quality;
  const auto n = static_cast<Index>(probs_.size());
  const auto size = static_cast<Index>(keys.size());
  const auto prob = [&](KeyPos key) {
    return probs_[static_cast<std::size_t>(key - visible_.begin)];
  };
  double sink = 0.0;
  for (KeyPos key : keys) {
    if (key >= n_sink) break;
    sink += prob(key);
  }
  const bool is_all = size == n;
  if (is_all && mix.rest.empty()) {
    quality.sink_share = sink;
    return quality;
  }

  const Index top_budget = std::min(n, k > 0 ? k : size);
  const Index top_ten = std::min<Index>(n, 10);
  Index in_ten = 0;
  Index in_budget = 0;
  Index in_oracle = 0;
  double mass = 0.0;
  for (KeyPos key : keys) {
    mass += prob(key);
    const Index rank = rank_[static_cast<std::size_t>(key - visible_.begin)];
    in_ten += rank < top_ten;
    in_budget += rank < top_budget;
    in_oracle += rank < size;
  }
  if (is_all || top_budget == n) in_budget = size;
  if (is_all) in_oracle = size;
  quality.mass = is_all ? 1.0 : std::min(mass / keys_prob_, 1.0);
  quality.recall10 = static_cast<double>(in_ten) / static_cast<double>(top_ten);
  quality.recallk =
      top_budget == 0 ? 1.0 : static_cast<double>(in_budget) / static_cast<double>(top_budget);
  quality.jaccard =
      size == 0 ? 1.0 : static_cast<double>(in_oracle) / static_cast<double>(2 * size - in_oracle);
  quality.sink_share = mass > 0.0 ? sink / mass : 0.0;

  std::vector<double> y = list_output(keys, mass);
  std::vector<double> raw = y;
  for (double& x : raw) x *= mass + sink_prob_;
  if (!mix.rest.empty()) {
    for (std::size_t c = 0; c < y.size(); ++c) {
      y[c] = mix.weight * y[c] + (1.0 - mix.weight) * static_cast<double>(mix.rest[c]);
    }
  }
  quality.output_error = distance(y, output_);
  quality.output_error_rel = output_norm_ > 0.0 ? quality.output_error / output_norm_ : 0.0;
  quality.output_error_raw = is_all ? 0.0 : distance(raw, output_);
  return quality;
}

Index symmetric_difference(std::span<const KeyPos> a, std::span<const KeyPos> b) {
  Index common = 0;
  std::size_t j = 0;
  for (KeyPos key : a) {
    while (j < b.size() && b[j] < key) ++j;
    common += j < b.size() && b[j] == key;
  }
  return static_cast<Index>(a.size() + b.size()) - 2 * common;
}

}  // namespace kvscope

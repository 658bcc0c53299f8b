#include "core/sim/metrics.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/attention/key_kernels.hpp"
#include "core/attention/list_kernels.hpp"
#include "core/attention/score_rows.hpp"
#include "core/base/nan.hpp"

namespace kvscope {

namespace {

/// Below this a division by the mass loses digits: weights are then made from the scores.
constexpr double kTinyMass = 1e-200;

double distance(std::span<const double> a, std::span<const double> b) {
  double sum = 0.0;
  for (std::size_t c = 0; c < a.size(); ++c) sum += (a[c] - b[c]) * (a[c] - b[c]);
  return std::sqrt(sum);
}

}  // namespace

void count_ages(std::span<const KeyPos> keys, Index pos, AgeHistogram& ages) {
  auto end = keys.end();  // keys of this bin and older ones
  for (std::size_t bin = 0; bin < kAgeBins && end != keys.begin(); ++bin) {
    const Index oldest = bin + 1 < kAgeBins ? (Index{1} << bin) - 1 : pos;
    const auto first = std::lower_bound(keys.begin(), end, pos - oldest);
    ages[bin] += end - first;
    end = first;
  }
}

void DenseRow::prepare(std::span<const double> scores, TokenRange visible,
                       TensorView<const float> v, std::span<const Index> ks,
                       std::optional<double> sink_logit, bool with_best) {
  with_best_ = with_best;
  best_sums_.clear();
  visible_ = visible;
  v_ = v;
  const auto n = static_cast<Index>(scores.size());
  ks_.assign(ks.begin(), ks.end());
  ks_.push_back(10);
  for (Index& k : ks_) k = std::min(k, n);
  std::sort(ks_.begin(), ks_.end());
  ks_.erase(std::unique(ks_.begin(), ks_.end()), ks_.end());
  cuts_ = finder_.find(scores, ks_);
  scores_.assign(scores.begin(), scores.end());
  probs_.assign(scores.begin(), scores.end());
  lse_ = softmax_in_place(probs_, sink_logit);
  sink_logit_ = sink_logit;
  sink_prob_ = sink_logit ? std::exp(*sink_logit - lse_) : 0.0;
  keys_prob_ = sink_logit ? std::max(sum_of(probs_), kTinyMass) : 1.0;
  output_.assign(static_cast<std::size_t>(v.dim(1)), 0.0);
  add_weighted_rows(probs_, v.range(0, visible.begin, visible.end), output_);
  output_norm_ = norm_of(output_);
}

TopCut DenseRow::cut_of(Index k) {
  const auto it = std::lower_bound(ks_.begin(), ks_.end(), k);
  if (it != ks_.end() && *it == k) return cuts_[static_cast<std::size_t>(it - ks_.begin())];
  return other_finder_.find(scores_, std::span(&k, 1)).front();
}

double DenseRow::best_mass(Index k) {
  const auto n = static_cast<Index>(probs_.size());
  if (k >= n) return 1.0;
  if (k >= static_cast<Index>(best_sums_.size())) {
    // Of all sizes that were named, so that the row is sorted once.
    Index most = k;
    for (const Index other : ks_) most = other < n ? std::max(most, other) : most;
    std::vector<double> largest = probs_;
    std::nth_element(largest.begin(), largest.begin() + most, largest.end(), std::greater());
    std::sort(largest.begin(), largest.begin() + most, std::greater());
    best_sums_.assign(1, 0.0);
    for (Index i = 0; i < most; ++i)
      best_sums_.push_back(best_sums_.back() + largest[static_cast<std::size_t>(i)]);
  }
  return std::min(best_sums_[static_cast<std::size_t>(k)] / keys_prob_, 1.0);
}

/// Renormalised output where the mass is too small to divide by.
void DenseRow::list_output(std::span<const KeyPos> keys, std::span<double> y) const {
  std::vector<double> weights;
  for (KeyPos key : keys)
    weights.push_back(scores_[static_cast<std::size_t>(key - visible_.begin)]);
  softmax_in_place(weights, sink_logit_);
  std::fill(y.begin(), y.end(), 0.0);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto value = v_.row(keys[i]);
    for (std::size_t c = 0; c < y.size(); ++c) y[c] += weights[i] * static_cast<double>(value[c]);
  }
}

/// raw: the estimate of the dense output with weights and summaries, not
/// renormalised; y: renormalised.
void DenseRow::add_extras(std::span<const KeyPos> keys, const RowExtras& extras,
                          std::span<double> raw, std::span<double> y) const {
  if (extras.list_share) {
    const double share = *extras.list_share;
    const auto rest = extras.summary_v.row(0);
    for (std::size_t c = 0; c < y.size(); ++c)
      y[c] = share * y[c] + (1.0 - share) * static_cast<double>(rest[c]);
    return;
  }
  double total = sink_prob_;
  std::fill(raw.begin(), raw.end(), 0.0);
  const auto add = [&](double weight, std::span<const float> value) {
    total += weight;
    for (std::size_t c = 0; c < raw.size(); ++c) raw[c] += weight * static_cast<double>(value[c]);
  };
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const double log_weight =
        extras.log_weight.empty() ? 0.0 : static_cast<double>(extras.log_weight[i]);
    add(std::exp(scores_[static_cast<std::size_t>(keys[i] - visible_.begin)] + log_weight - lse_),
        v_.row(keys[i]));
  }
  for (std::size_t m = 0; m < extras.summary_scores.size(); ++m) {
    add(std::exp(extras.summary_scores[m] - lse_), extras.summary_v.row(static_cast<Index>(m)));
  }
  for (std::size_t c = 0; c < y.size(); ++c) y[c] = total > 0.0 ? raw[c] / total : 0.0;
}

/// The weight of the list's keys that count as sink.
double DenseRow::sink_weight(std::span<const KeyPos> keys, Index n_sink) const {
  double sink_logit = 0.0;
  for (KeyPos key : keys) {
    if (key >= n_sink) break;
    sink_logit += probs_[static_cast<std::size_t>(key - visible_.begin)];
  }
  return sink_logit;
}

double DenseRow::near_weight(std::span<const KeyPos> keys, Index n_sink) const {
  double weight = 0.0;
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) {
    if (*key < visible_.end - kNearKeys || *key < n_sink) break;
    weight += probs_[static_cast<std::size_t>(*key - visible_.begin)];
  }
  return weight;
}

double DenseRow::far_share(Index n_sink) const {
  const Index begin = std::clamp(n_sink, visible_.begin, visible_.end);
  const Index end = std::max(begin, visible_.end - kNearKeys);
  double weight = 0.0;  // of the others, which are few
  for (const auto& [first, last] :
       {std::pair(visible_.begin, begin), std::pair(end, visible_.end)}) {
    for (Index t = first; t < last; ++t)
      weight += probs_[static_cast<std::size_t>(t - visible_.begin)];
  }
  return end > begin ? std::max(1.0 - weight / keys_prob_, 0.0) : 0.0;
}

RowQuality DenseRow::compare(std::span<const KeyPos> keys, Index k, Index n_sink,
                             const RowExtras& extras) {
  DenseRow* const self = this;
  RowQuality quality;
  compare(std::span(&self, 1), keys, k, n_sink, std::span(&extras, 1), std::span(&quality, 1));
  return quality;
}

void DenseRow::compare(std::span<DenseRow* const> rows, std::span<const KeyPos> keys, Index k,
                       Index n_sink, std::span<const RowExtras> extras, std::span<RowQuality> out) {
  constexpr std::size_t kMostRows = 8;  // summed up at a time
  std::array<const double*, kMostRows> weights;
  std::array<double*, kMostRows> sums;
  std::array<double, kMostRows> masses;
  std::array<std::size_t, kMostRows> places;
  for (std::size_t r = 0; r < rows.size();) {
    std::size_t n = 0;
    for (; r < rows.size() && n < kMostRows; ++r) {
      DenseRow& row = *rows[r];
      if (keys.size() == row.probs_.size() && !extras[r].changes_output()) {  // all there is: exact
        out[r] = {};
        out[r].sink_share = row.sink_weight(keys, n_sink) / row.keys_prob_;
        out[r].far_share = out[r].far_kept = row.far_share(n_sink);
        if (!row.with_best_) out[r].best_mass = kNan;
        continue;
      }
      row.raw_.assign(row.output_.size(), 0.0);
      weights[n] = row.probs_.data();
      sums[n] = row.raw_.data();
      places[n++] = r;
    }
    if (n == 0) continue;
    const DenseRow& any = *rows[places[0]];
    add_weighted_rows(std::span(weights).first(n), any.visible_.begin, keys, any.v_,
                      std::span(sums).first(n), std::span(masses).first(n));
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t at = places[i];
      out[at] = rows[at]->compare_sums(keys, k, n_sink, extras[at], masses[i]);
    }
  }
}

RowQuality DenseRow::compare_sums(std::span<const KeyPos> keys, Index k, Index n_sink,
                                  const RowExtras& extras, double mass) {
  RowQuality quality;
  const auto n = static_cast<Index>(probs_.size());
  const auto size = static_cast<Index>(keys.size());
  const double sink_logit = sink_weight(keys, n_sink);
  const bool is_all = size == n;
  const Index top_budget = std::min(n, k > 0 ? k : size);
  const Index top_ten = std::min<Index>(n, 10);
  auto [in_ten, in_budget, in_oracle] = count_in_cuts(
      scores_, visible_.begin, keys, {cut_of(top_ten), cut_of(top_budget), cut_of(size)});
  if (is_all || top_budget == n) in_budget = size;
  if (is_all) in_oracle = size;
  quality.mass = is_all ? 1.0 : std::min(mass / keys_prob_, 1.0);
  quality.recall10 = static_cast<double>(in_ten) / static_cast<double>(top_ten);
  quality.recallk =
      top_budget == 0 ? 0.0 : static_cast<double>(in_budget) / static_cast<double>(top_budget);
  quality.jaccard =
      size == 0 ? 0.0 : static_cast<double>(in_oracle) / static_cast<double>(2 * size - in_oracle);
  quality.sink_share = mass > 0.0 ? sink_logit / mass : 0.0;
  quality.far_share = far_share(n_sink);
  const double kept = std::max(mass - sink_logit - near_weight(keys, n_sink), 0.0) / keys_prob_;
  quality.far_kept = is_all ? quality.far_share : std::min(kept, quality.far_share);
  quality.best_mass = with_best_ ? std::max(best_mass(size), quality.mass) : kNan;

  y_ = raw_;
  if (mass + sink_prob_ >= kTinyMass) {
    for (double& x : y_) x /= mass + sink_prob_;
  } else {
    list_output(keys, y_);
  }
  if (extras.changes_output()) add_extras(keys, extras, raw_, y_);
  quality.output_error = distance(y_, output_);
  quality.output_error_rel = output_norm_ > 0.0 ? quality.output_error / output_norm_ : 0.0;
  quality.output_error_raw = is_all && !extras.changes_output() ? 0.0 : distance(raw_, output_);
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

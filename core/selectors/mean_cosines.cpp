#include "core/selectors/mean_cosines.hpp"

#include <algorithm>
#include <iterator>

#include "core/attention/key_kernels.hpp"
#include "core/attention/remote_rows.hpp"
#include "core/attention/score_rows.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/owners.hpp"

namespace kvscope {

namespace {

constexpr std::size_t kPart = 2048;  // keys that a thread scores at a time

/// The sum of a list's keys, brought up to the list by what left and what came.
class RunningSum {
 public:
  void truncate(Index) { keys_.clear(); }  // sums cannot be cut: made anew

  /// weights: of positions from 0.
  std::span<const double> of(std::span<const KeyPos> keys, std::span<const double> weights,
                             TensorView<const float> k) {
    std::vector<KeyPos> gone;
    std::vector<KeyPos> fresh;
    std::ranges::set_difference(keys_, keys, std::back_inserter(gone));
    std::ranges::set_difference(keys, keys_, std::back_inserter(fresh));
    if (keys_.empty() || 2 * gone.size() > keys_.size()) {
      sum_.assign(static_cast<std::size_t>(k.dim(1)), 0.0);
      gone.clear();
      fresh.assign(keys.begin(), keys.end());
    }
    add(gone, weights, k, -1.0);
    add(fresh, weights, k, 1.0);
    keys_.assign(keys.begin(), keys.end());
    return sum_;
  }

 private:
  void add(std::span<const KeyPos> keys, std::span<const double> weights, TensorView<const float> k,
           double sign) {
    if (keys.empty()) return;
    const auto first = static_cast<std::size_t>(keys.front());
    std::vector<double> signed_weights(
        weights.begin() + keys.front(),
        weights.begin() + keys.back() + static_cast<std::ptrdiff_t>(1));
    for (double& weight : signed_weights) weight *= sign;
    add_weighted_rows(signed_weights, static_cast<Index>(first), keys, k, sum_);
  }

  std::vector<double> sum_;   // [d_head]
  std::vector<KeyPos> keys_;  // that are in it
};

std::vector<double> exact_cosines(TensorView<const float> k, std::span<const KeyPos> keys,
                                  bool takes_unit, double eps) {
  std::vector<double> mean(static_cast<std::size_t>(k.dim(1)), 0.0);
  std::vector<double> inverse_norm;
  for (const KeyPos pos : keys) {
    const auto key = k.row(pos);
    inverse_norm.push_back(1.0 / std::max(norm_of(key), eps));
    const double weight = takes_unit ? inverse_norm.back() : 1.0;
    for (std::size_t c = 0; c < mean.size(); ++c) mean[c] += weight * static_cast<double>(key[c]);
  }
  for (double& value : mean) value /= static_cast<double>(keys.size());
  const double mean_norm = std::max(norm_of(mean), eps);
  std::vector<double> cosines;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto key = k.row(keys[i]);
    double dot = 0.0;
    for (std::size_t c = 0; c < mean.size(); ++c) dot += mean[c] * static_cast<double>(key[c]);
    cosines.push_back(dot * inverse_norm[i] / mean_norm);
  }
  return cosines;
}

/// The sum of the list's keys, or of their unit vectors.
std::span<const double> running_sum_of(const SelectCall& call, Index kv_head,
                                       std::span<const KeyPos> keys,
                                       std::span<const double> inverse_norms, bool takes_unit) {
  struct Sums {
    RunningSum unit, raw;
    void truncate(Index n_keys) { unit.truncate(n_keys), raw.truncate(n_keys); }
  };
  Sums& sums = engine_of(call).kept<Sums>(call.layer, kv_head);
  const std::vector<double> ones(takes_unit ? 0 : inverse_norms.size(), 1.0);
  return (takes_unit ? sums.unit : sums.raw)
      .of(keys, takes_unit ? inverse_norms : ones, call.k.sub(kv_head));
}

/// The unit vector of the list's mean, in f32.
std::vector<double> unit_mean(const SelectCall& call, Index kv_head, std::span<const KeyPos> keys,
                              std::span<const double> inverse_norms, bool takes_unit, double eps) {
  const std::span<const double> sum =
      running_sum_of(call, kv_head, keys, inverse_norms, takes_unit);
  const double length = std::max(norm_of(sum), eps * static_cast<double>(keys.size()));
  std::vector<double> unit;
  for (const double x : sum) unit.push_back(static_cast<double>(static_cast<float>(x / length)));
  return unit;
}

}  // namespace

KeyValues mean_cosines(const SelectCall& call, const KeyLists& lists, bool takes_unit, double eps) {
  if (call.remote != nullptr) return call.remote->mean_cosines(spans_of(lists), takes_unit, eps);
  ScoreEngine& engine = engine_of(call);
  const auto n_kv = static_cast<Index>(lists.size());
  KeyValues cosines(lists.size());
  if (engine.precision() == ScorePrecision::f64) {
    engine.run(n_kv, [&](Index kv_head, ScoreWorker&) {
      const auto at = static_cast<std::size_t>(kv_head);
      cosines[at] = exact_cosines(call.k.sub(kv_head), lists[at], takes_unit, eps);
    });
    return cosines;
  }
  std::vector<std::vector<double>> means(lists.size());
  std::vector<std::span<const double>> norms(lists.size());
  struct Part {
    Index kv_head;
    std::size_t begin, n;
  };
  std::vector<Part> parts;
  for (std::size_t i = 0; i < lists.size(); ++i) {
    cosines[i].resize(lists[i].size());
    for (std::size_t at = 0; at < lists[i].size(); at += kPart)
      parts.push_back({static_cast<Index>(i), at, std::min(kPart, lists[i].size() - at)});
  }
  engine.run(n_kv, [&](Index kv_head, ScoreWorker&) {
    const auto at = static_cast<std::size_t>(kv_head);
    const auto k = call.k.sub(kv_head);
    norms[at] = engine.inverse_norms(call.layer, kv_head, k, {0, k.dim(0)}, eps);
    means[at] = unit_mean(call, kv_head, lists[at], norms[at], takes_unit, eps);
  });
  engine.run(static_cast<Index>(parts.size()), [&](Index i, ScoreWorker& worker) {
    const auto [kv_head, begin, n] = parts[static_cast<std::size_t>(i)];
    const auto at = static_cast<std::size_t>(kv_head);
    const auto keys = std::span(lists[at]).subspan(begin, n);
    worker.dots.compute_listed(means[at], call.k.sub(kv_head), keys);
    for (std::size_t t = 0; t < n; ++t)
      cosines[at][begin + t] = worker.dots.row(0)[t] * norms[at][static_cast<std::size_t>(keys[t])];
  });
  return cosines;
}

KeyValues inverse_norms(const SelectCall& call, const KeyLists& lists, double eps) {
  if (call.remote != nullptr) return call.remote->inverse_norms(spans_of(lists), eps);
  KeyValues values(lists.size());
  engine_of(call).run(static_cast<Index>(lists.size()), [&](Index kv_head, ScoreWorker&) {
    const auto k = call.k.sub(kv_head);
    const auto at = static_cast<std::size_t>(kv_head);
    values[at] = values_at(
        engine_of(call).inverse_norms(call.layer, kv_head, k, {0, k.dim(0)}, eps), lists[at]);
  });
  return values;
}

void keep_mean_of(const SelectCall& call, Index kv_head, std::span<const KeyPos> keys,
                  bool takes_unit, double eps) {
  if (call.remote != nullptr || engine_of(call).precision() == ScorePrecision::f64) return;
  const auto k = call.k.sub(kv_head);
  running_sum_of(call, kv_head, keys,
                 engine_of(call).inverse_norms(call.layer, kv_head, k, {0, k.dim(0)}, eps),
                 takes_unit);
}

}  // namespace kvscope

#include "core/attention/top_cuts.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/attention/list_kernels.hpp"
#include "core/attention/row_kernels.hpp"

namespace kvscope {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kFewBuckets = 16;  // that scores are compared with, rather than looked up

/// About one bucket for eight scores: a table that stays in the nearest cache.
Index buckets_for(std::size_t n) {
  return n < 512 ? 64 : n < 4096 ? 512 : 2048;
}

}  // namespace

/// Fills bucket_of_ and n_in_.
void TopCuts::count(std::span<const double> scores) {
  n_buckets_ = buckets_for(scores.size());
  bucket_of_.resize(scores.size());
  n_in_.assign(static_cast<std::size_t>(n_buckets_) + 1, 0);
  const ScoreRange range = finite_range(scores);
  const double width = range.high - range.low;
  // all in one bucket where there is nothing to divide, or no number for it
  const bool is_divisible = std::isfinite(width) && width > 0.0;
  const double per_unit = is_divisible ? static_cast<double>(n_buckets_ - 1) / width : 0.0;
  if (is_divisible && std::isfinite(per_unit)) {
    bucket_row(scores, range.low, per_unit, bucket_of_.data());
  } else {
    for (std::size_t i = 0; i < scores.size(); ++i) bucket_of_[i] = scores[i] > -kInfinity ? 1 : 0;
  }
  for (const std::int32_t bucket : bucket_of_) ++n_in_[static_cast<std::size_t>(bucket)];
}

/// Fills members_ of the buckets with a slot.
void TopCuts::collect(std::span<const double> scores) {
  const auto add = [&](std::size_t i) {
    const std::int32_t slot = slot_[static_cast<std::size_t>(bucket_of_[i])];
    if (slot > 0)
      members_[static_cast<std::size_t>(slot - 1)].push_back({scores[i], static_cast<Index>(i)});
  };
  if (wanted_.size() > kFewBuckets) {
    for (std::size_t i = 0; i < scores.size(); ++i) add(i);
    return;
  }
  std::size_t n_members = 0;
  for (const std::int32_t bucket : wanted_)
    n_members += static_cast<std::size_t>(n_in_[static_cast<std::size_t>(bucket)]);
  found_.resize(n_members + kListSlack);
  const std::size_t n_found = find_buckets(bucket_of_, wanted_, found_.data());
  for (std::size_t i = 0; i < n_found; ++i) add(static_cast<std::size_t>(found_[i]));
}

std::span<const TopCut> TopCuts::find(std::span<const double> scores, std::span<const Index> ks) {
  cuts_.assign(ks.size(), TopCut{});
  if (scores.empty()) return cuts_;
  count(scores);
  const Index n_candidates = static_cast<Index>(scores.size()) - n_in_[0];
  order_.resize(ks.size());
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  std::sort(order_.begin(), order_.end(),
            [&](std::size_t a, std::size_t b) { return ks[a] < ks[b]; });
  slot_.assign(n_in_.size(), 0);
  place_.assign(ks.size(), {0, 0});
  wanted_.clear();
  std::int32_t n_slots = 0;
  Index n_better = 0;  // scores in the buckets above `bucket`
  Index bucket = n_buckets_;
  for (const std::size_t i : order_) {
    const Index k = ks[i];
    if (k < 1) {
      cuts_[i] = {kInfinity, -1};
    } else if (k >= n_candidates) {
      cuts_[i] = {-kInfinity, -1};
    } else {
      while (n_better + n_in_[static_cast<std::size_t>(bucket)] < k)
        n_better += n_in_[static_cast<std::size_t>(bucket--)];
      std::int32_t& slot = slot_[static_cast<std::size_t>(bucket)];
      if (slot == 0) {
        slot = ++n_slots;
        wanted_.push_back(static_cast<std::int32_t>(bucket));
      }
      place_[i] = {slot, static_cast<std::int32_t>(k - n_better - 1)};
    }
  }
  if (n_slots == 0) return cuts_;
  if (members_.size() < static_cast<std::size_t>(n_slots))
    members_.resize(static_cast<std::size_t>(n_slots));
  for (auto& one : members_) one.clear();
  collect(scores);
  for (std::int32_t slot = 0; slot < n_slots; ++slot) {
    auto& one = members_[static_cast<std::size_t>(slot)];
    std::sort(one.begin(), one.end(), [](const Candidate& a, const Candidate& b) {
      return a.score != b.score ? a.score > b.score : a.index < b.index;
    });
  }
  for (std::size_t i = 0; i < ks.size(); ++i) {
    const auto& [slot, rank] = place_[i];
    if (slot == 0) continue;
    const Candidate& last =
        members_[static_cast<std::size_t>(slot - 1)][static_cast<std::size_t>(rank)];
    cuts_[i] = {last.score, last.index};
  }
  return cuts_;
}

std::vector<Index> members(std::span<const double> scores, const TopCut& cut, Index k) {
  const Index n = std::min(std::max<Index>(k, 0), static_cast<Index>(scores.size()));
  std::vector<std::int32_t> kept(static_cast<std::size_t>(n) + kListSlack);
  kept.resize(keep_positions(scores, cut, /*first=*/0, kept.data()));
  return {kept.begin(), kept.end()};
}

}  // namespace kvscope

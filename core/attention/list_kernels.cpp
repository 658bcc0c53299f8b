#include "core/attention/list_kernels.hpp"

#include <algorithm>
#include <bit>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/attention/list_kernels.cpp"
#include <hwy/foreach_target.h>
// must follow foreach_target.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kvscope::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::CappedTag<double, 8>;
using Narrow = hn::CappedTag<std::int32_t, 16>;

/// One run of a row: scores above the cut, and with kTies those equal to it. Two vectors of scores
/// at a time, whose masks side by side are that of one vector of positions (Compress of 64-bit
/// lanes is slow where it reads a table).
template <bool kTies>
HWY_INLINE std::size_t keep_run(const double* scores, std::size_t n, double cut, std::int32_t first,
                                std::int32_t* out) {
  std::size_t n_kept = 0;
  std::size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const D d;
  const hn::Repartition<std::int32_t, D> positions;
  const std::size_t lanes = hn::Lanes(d);
  const auto limit = hn::Set(d, cut);
  const auto step = hn::Set(positions, static_cast<std::int32_t>(2 * lanes));
  auto position = hn::Iota(positions, first);
  const auto bits_of = [&](const double* x) {
    const auto v = hn::LoadU(d, x);
    std::uint8_t bits[8] = {};
    hn::StoreMaskBits(d, kTies ? hn::Ge(v, limit) : hn::Gt(v, limit), bits);
    return unsigned{bits[0]};
  };
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const unsigned bits = bits_of(scores + i) | bits_of(scores + i + lanes) << lanes;
    const std::uint8_t bytes[8] = {static_cast<std::uint8_t>(bits),
                                   static_cast<std::uint8_t>(bits >> 8)};
    const auto is_in = hn::LoadMaskBits(positions, bytes);
    hn::StoreU(hn::Compress(position, is_in), positions, out + n_kept);
    n_kept += static_cast<std::size_t>(std::popcount(bits));
    position = hn::Add(position, step);
  }
#endif
  for (; i < n; ++i) {
    out[n_kept] = first + static_cast<std::int32_t>(i);
    n_kept += (kTies ? scores[i] >= cut : scores[i] > cut) ? 1 : 0;
  }
  return n_kept;
}

std::size_t keep_positions(const double* scores, std::size_t n, const TopCut& cut,
                           std::int32_t first, std::int32_t* out) {
  const std::size_t n_tied =
      cut.last_tie < 0 ? 0 : std::min(n, static_cast<std::size_t>(cut.last_tie) + 1);
  const std::size_t n_kept = keep_run<true>(scores, n_tied, cut.score, first, out);
  return n_kept + keep_run<false>(scores + n_tied, n - n_tied, cut.score,
                                  first + static_cast<std::int32_t>(n_tied), out + n_kept);
}

void count_in_cuts(const double* scores, Index first, const std::int32_t* keys, std::size_t n,
                   const TopCut* cuts, Index* counts) {
  const D d;
  const hn::Rebind<std::int64_t, D> wide;
  const hn::Rebind<std::int32_t, D> narrow;
  const std::size_t lanes = hn::Lanes(d);
  const auto base = hn::Set(wide, first);
  decltype(hn::Set(d, 0.0)) limit[3];
  decltype(hn::Set(wide, 0)) last[3];
  std::size_t n_in[3] = {0, 0, 0};
  for (int c = 0; c < 3; ++c) {
    limit[c] = hn::Set(d, cuts[c].score);
    last[c] = hn::Set(wide, cuts[c].last_tie + 1);
  }
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto at = hn::Sub(hn::PromoteTo(wide, hn::LoadU(narrow, keys + i)), base);
    const auto x = hn::GatherIndex(d, scores, at);
    for (int c = 0; c < 3; ++c) {
      const auto is_tie_in = hn::RebindMask(d, hn::Lt(at, last[c]));
      const auto is_in = hn::Or(hn::Gt(x, limit[c]), hn::And(hn::Eq(x, limit[c]), is_tie_in));
      n_in[c] += hn::CountTrue(d, is_in);
    }
  }
  for (; i < n; ++i) {
    const Index at = keys[i] - first;
    for (int c = 0; c < 3; ++c) n_in[c] += cuts[c].contains(scores[at], at) ? 1 : 0;
  }
  for (int c = 0; c < 3; ++c) counts[c] = static_cast<Index>(n_in[c]);
}

std::size_t find_buckets(const std::int32_t* buckets, std::size_t n, const std::int32_t* wanted,
                         std::size_t n_wanted, std::int32_t* out) {
  const Narrow d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t n_found = 0;
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto bucket = hn::LoadU(d, buckets + i);
    auto is_in = hn::Eq(bucket, hn::Set(d, wanted[0]));
    for (std::size_t w = 1; w < n_wanted; ++w)
      is_in = hn::Or(is_in, hn::Eq(bucket, hn::Set(d, wanted[w])));
    if (hn::AllFalse(d, is_in)) continue;
    const auto position = hn::Iota(d, static_cast<std::int32_t>(i));
    hn::StoreU(hn::Compress(position, is_in), d, out + n_found);
    n_found += hn::CountTrue(d, is_in);
  }
  for (; i < n; ++i) {
    out[n_found] = static_cast<std::int32_t>(i);
    bool is_in = false;
    for (std::size_t w = 0; w < n_wanted; ++w) is_in = is_in || buckets[i] == wanted[w];
    n_found += is_in ? 1 : 0;
  }
  return n_found;
}

bool is_ascending(const std::int32_t* keys, std::size_t n) {
  const Narrow d;
  const std::size_t lanes = hn::Lanes(d);
  auto is_right = hn::Eq(hn::Zero(d), hn::Zero(d));
  std::size_t i = 1;
  for (; i + lanes <= n; i += lanes) {
    is_right = hn::And(is_right, hn::Gt(hn::LoadU(d, keys + i), hn::LoadU(d, keys + i - 1)));
  }
  bool is_wrong = !hn::AllTrue(d, is_right);
  for (; i < n; ++i) is_wrong = is_wrong || keys[i] <= keys[i - 1];
  return !is_wrong;
}

}  // namespace kvscope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvscope {

// Tables of the versions for each instruction set; the best one is picked at the first call.
HWY_EXPORT(keep_positions);
HWY_EXPORT(count_in_cuts);
HWY_EXPORT(find_buckets);
HWY_EXPORT(is_ascending);

std::size_t keep_positions(std::span<const double> scores, const TopCut& cut, std::int32_t first,
                           std::int32_t* out) {
  return HWY_DYNAMIC_DISPATCH(keep_positions)(scores.data(), scores.size(), cut, first, out);
}

std::array<Index, 3> count_in_cuts(std::span<const double> scores, Index first,
                                   std::span<const std::int32_t> keys,
                                   const std::array<TopCut, 3>& cuts) {
  std::array<Index, 3> counts{};
  HWY_DYNAMIC_DISPATCH(count_in_cuts)
  (scores.data(), first, keys.data(), keys.size(), cuts.data(), counts.data());
  return counts;
}

std::size_t find_buckets(std::span<const std::int32_t> buckets,
                         std::span<const std::int32_t> wanted, std::int32_t* out) {
  if (wanted.empty()) return 0;
  return HWY_DYNAMIC_DISPATCH(find_buckets)(buckets.data(), buckets.size(), wanted.data(),
                                            wanted.size(), out);
}

bool is_ascending(std::span<const std::int32_t> keys) {
  return HWY_DYNAMIC_DISPATCH(is_ascending)(keys.data(), keys.size());
}

}  // namespace kvscope
#endif

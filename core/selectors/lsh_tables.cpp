#include "core/selectors/lsh_tables.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/attention/row_kernels.hpp"

namespace kvscope {

namespace {

// Keys that are hashed together: their products stay in the processor's cache.
constexpr Index kHashBlock = 128;

double centred_norm(std::span<const float> key, std::span<const double> mean) {
  double sum = 0.0;
  for (std::size_t c = 0; c < key.size(); ++c) {
    const double x = static_cast<double>(key[c]) - mean[c];
    sum += x * x;
  }
  return std::sqrt(sum);
}

}  // namespace

LshCentre lsh_centre(TensorView<const float> k, std::span<const KeyPos> keys) {
  LshCentre centre;
  centre.mean.assign(static_cast<std::size_t>(k.dim(1)), 0.0);
  for (const KeyPos pos : keys) {
    const auto key = k.row(pos);
    for (std::size_t c = 0; c < key.size(); ++c) centre.mean[c] += static_cast<double>(key[c]);
  }
  for (double& x : centre.mean) x /= static_cast<double>(keys.size());
  for (const KeyPos pos : keys)
    centre.largest_norm = std::max(centre.largest_norm, centred_norm(k.row(pos), centre.mean));
  return centre;
}

LshTables::LshTables(const CounterRng& rng, Index d_head, Index n_bits, Index n_tables)
    : n_bits_(n_bits), n_tables_(n_tables), planes_({n_bits * n_tables, d_head}) {
  std::uint64_t counter = 0;
  for (Index plane = 0; plane < n_bits * n_tables; ++plane) {
    for (float& x : planes_.view().row(plane)) x = static_cast<float>(rng.normal(counter++));
    last_channel_.push_back(rng.normal(counter++));
  }
  plane_queries_.assign(planes_.flat().begin(), planes_.flat().end());
}

void LshTables::restart(const LshCentre& centre) {
  centre_ = centre;
  n_keys_ = 0;
  lengths_.clear();
  buckets_.assign(static_cast<std::size_t>(n_tables_) << n_bits_, {});
  plane_on_mean_.clear();
  const std::span<const double> planes(plane_queries_);
  const std::size_t d = centre_.mean.size();
  for (std::size_t plane = 0; plane < last_channel_.size(); ++plane)
    plane_on_mean_.push_back(dot_of(planes.subspan(plane * d, d), centre_.mean));
}

void LshTables::append_up_to(TensorView<const float> k, KeyDots& dots) {
  const auto n_planes = static_cast<Index>(last_channel_.size());
  std::vector<double> extra;         // the lengthening channel of the block's keys
  std::vector<std::uint32_t> codes;  // of one table
  for (Index first = n_keys_; first < k.dim(0); first += kHashBlock) {
    const Index end = std::min(first + kHashBlock, k.dim(0));
    extra.clear();
    for (Index pos = first; pos < end; ++pos) {
      const double norm = centred_norm(k.row(pos), centre_.mean);
      lengths_.push_back(std::max(norm, centre_.largest_norm));
      extra.push_back(
          std::sqrt(std::max(0.0, centre_.largest_norm * centre_.largest_norm - norm * norm)));
    }
    dots.compute(plane_queries_, n_planes, k, {first, end});
    for (Index table = 0; table < n_tables_; ++table) {
      codes.assign(extra.size(), 0);
      for (Index bit = 0; bit < n_bits_; ++bit) {
        const Index plane = table * n_bits_ + bit;
        const std::span<const double> products = dots.row(plane);
        const double mean = plane_on_mean_[static_cast<std::size_t>(plane)];
        const double last = last_channel_[static_cast<std::size_t>(plane)];
        for (std::size_t t = 0; t < codes.size(); ++t)
          codes[t] |= static_cast<std::uint32_t>(products[t] - mean + extra[t] * last > 0.0) << bit;
      }
      for (std::size_t t = 0; t < codes.size(); ++t)
        bucket(table, codes[t]).push_back(static_cast<KeyPos>(first + static_cast<Index>(t)));
    }
    n_keys_ = end;
  }
}

void LshTables::truncate(Index n_keys) {
  if (n_keys >= n_keys_) return;
  n_keys_ = n_keys;
  lengths_.resize(static_cast<std::size_t>(n_keys));
  for (std::vector<KeyPos>& keys : buckets_) {
    while (!keys.empty() && keys.back() >= n_keys) keys.pop_back();
  }
}

void LshTables::count_collisions(std::span<const double> q, KeyDots& dots,
                                 std::span<std::uint16_t> counts) const {
  dots.compute(q, 1, planes_.view(), {0, planes_.dim(0)});
  const std::span<const double> products = dots.row(0);
  for (Index table = 0; table < n_tables_; ++table) {
    std::uint32_t code = 0;
    for (Index bit = 0; bit < n_bits_; ++bit) {
      const double product = products[static_cast<std::size_t>(table * n_bits_ + bit)];
      code |= static_cast<std::uint32_t>(product > 0.0) << bit;
    }
    for (const KeyPos key : bucket(table, code)) ++counts[static_cast<std::size_t>(key)];
  }
}

double LshTables::on_mean(std::span<const double> q) const {
  return dot_of(q, centre_.mean);
}

double LshTables::bit_probability(double q_norm, double product, KeyPos key) const {
  const double norms = q_norm * lengths_[static_cast<std::size_t>(key)];
  const double cosine = norms > 0.0 ? product / norms : 0.0;
  return 1.0 - std::acos(std::clamp(cosine, -1.0, 1.0)) / std::numbers::pi;
}

double lsh_sampling_probability(double p, Index n_bits, Index n_tables, Index n_needed) {
  // A key that collided although it cannot: its weight stays finite.
  constexpr double kLeast = 1e-30;
  const auto n = static_cast<double>(n_tables);
  double hit = 1.0;  // in all bits of a table
  for (Index bit = 0; bit < n_bits; ++bit) hit *= std::clamp(p, 0.0, 1.0);
  if (hit >= 1.0) return n_tables >= n_needed ? 1.0 : kLeast;
  const double log_miss = std::log1p(-hit);
  const double at_least_one = -std::expm1(n * log_miss);
  if (n_needed <= 1) return std::max(at_least_one, kLeast);
  // of two terms that nearly cancel for rare hits: their series
  if (n * hit < 1e-4) {
    const double series = 0.5 * n * (n - 1.0) * hit * hit * (1.0 - 2.0 / 3.0 * (n - 2.0) * hit);
    return std::max(series, kLeast);
  }
  return std::max(at_least_one - n * hit * std::exp((n - 1.0) * log_miss), kLeast);
}

}  // namespace kvscope

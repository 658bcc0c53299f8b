// Hash tables of one KV head's keys for MagicPIG: signs of random projections, so that keys collide
// with a query the more often the smaller the angle between them.
//
// SimpleLSH (Neyshabur and Srebro, ICML 2015): a centred key x gets the channel sqrt(M^2 - |x|^2),
// M the largest norm, a query gets 0 there; the angle then follows the inner product. A table's
// code is n_bits signs. Buckets hold positions in ascending order, so looking a query up costs what
// it collides with.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/attention/selection.hpp"
#include "core/base/rng.hpp"
#include "core/selectors/key_dots.hpp"

namespace kvscope {

/// What keys are moved and lengthened by: fitted once, good for later keys too (a longer one gets 0
/// in the new channel).
struct LshCentre {
  std::vector<double> mean;   // [d_head]
  double largest_norm = 0.0;  // of a key less the mean
};

/// Of the keys at `keys` (not empty) of k [n_keys, d_head].
LshCentre lsh_centre(TensorView<const float> k, std::span<const KeyPos> keys);

class LshTables {
 public:
  /// Projections: normal numbers of `rng` as floats, element (table * n_bits + bit) * (d_head + 1)
  /// + channel.
  LshTables(const CounterRng& rng, Index d_head, Index n_bits, Index n_tables);

  Index n_keys() const { return n_keys_; }
  /// Forgets all keys; those to come are centred so.
  void restart(const LshCentre& centre);
  /// Hashes the keys of k [n_keys, d_head] that are new.
  void append_up_to(TensorView<const float> k, KeyDots& dots);
  /// Forgets the keys at positions >= n_keys.
  void truncate(Index n_keys);

  /// Adds to counts [n_keys()] the tables in which each key collides with q [d_head].
  void count_collisions(std::span<const double> q, KeyDots& dots,
                        std::span<std::uint16_t> counts) const;
  /// q . the mean by which keys are moved; q [d_head].
  double on_mean(std::span<const double> q) const;
  /// Probability that a key collides with a query in one bit of one table. product: of the query
  /// with the key less the mean; q_norm: the query's length.
  double bit_probability(double q_norm, double product, KeyPos key) const;

 private:
  std::vector<KeyPos>& bucket(Index table, std::uint32_t code) {
    return buckets_[(static_cast<std::size_t>(table) << n_bits_) + code];
  }
  const std::vector<KeyPos>& bucket(Index table, std::uint32_t code) const {
    return buckets_[(static_cast<std::size_t>(table) << n_bits_) + code];
  }
  Index n_bits_;
  Index n_tables_;
  Tensor<float> planes_;               // [n_tables * n_bits, d_head]
  std::vector<double> plane_queries_;  // the same numbers, for products with many keys
  std::vector<double> last_channel_;   // [n_tables * n_bits] of the planes
  std::vector<double> plane_on_mean_;  // [n_tables * n_bits]
  LshCentre centre_;
  Index n_keys_ = 0;
  std::vector<double> lengths_;               // [n_keys] of the lengthened keys
  std::vector<std::vector<KeyPos>> buckets_;  // [n_tables, 2^n_bits]
};

/// Probability that a key is sampled which collides with probability p in each of n_bits bits: it
/// has to meet the query in at least `n_needed` (1 or 2) of n_tables tables.
double lsh_sampling_probability(double p, Index n_bits, Index n_tables, Index n_needed);

}  // namespace kvscope

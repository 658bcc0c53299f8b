// A copy of one KV head's keys in a few bits per channel, which grows with the cache: what Twilight
// estimates attention with.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/attention/selection.hpp"
#include "core/base/raw_vector.hpp"
#include "core/selectors/key_dots.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

/// A key [n] rounded to 2^bits levels between its smallest and its largest element, to out [n];
/// with 16 bits, and where all elements are equal, what it is.
void round_to_levels(std::span<const float> key, int bits, std::span<double> out);

/// Each key is rounded to 2^bits levels between its smallest and its largest channel; with 16 bits,
/// and where all channels of a key are equal, it stays what it is. Holds one byte per element up to
/// 8 bits; with more, keys are rounded when used.
class RoundedKeys {
 public:
  explicit RoundedKeys(int bits) : bits_(bits) {}

  /// Rounds the keys of k [n_keys, d_head] that are new.
  void append_up_to(TensorView<const float> k);
  /// Forgets the keys at positions >= n_keys.
  void truncate(Index n_keys);

  /// out[i] = q . rounded key at position keys[i]; q [d_head]; k as given to append_up_to. f64 sums
  /// over the rounded channels; f32 over the codes, which are scaled afterwards.
  void dots(std::span<const double> q, TensorView<const float> k, std::span<const KeyPos> keys,
            ScorePrecision precision, std::span<double> out) const;

 private:
  bool stores_codes() const { return bits_ <= 8; }

  int bits_;
  Index d_head_ = 0;
  RawVector<std::uint8_t> codes_;  // [n_keys, d_head]
  std::vector<float> low_;         // [n_keys] the smallest channel
  std::vector<double> step_;       // [n_keys] between levels; 0 where all channels are equal
};

}  // namespace kvscope

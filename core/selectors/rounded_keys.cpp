#include "core/selectors/rounded_keys.hpp"

#include "core/attention/row_kernels.hpp"
#include "core/attention/score_kernels.hpp"

namespace kvscope {

namespace {

struct Levels {
  double low = 0.0;
  double step = 0.0;
  double inverse_step = 0.0;  // 0 where all channels are equal
};

Levels levels_of(std::span<const float> key, int bits) {
  const FloatRange range = range_of(key);
  const auto low = static_cast<double>(range.low);
  const double step =
      (static_cast<double>(range.high) - low) / static_cast<double>((Index{1} << bits) - 1);
  return {low, step, step == 0.0 ? 0.0 : 1.0 / step};
}

}  // namespace

void round_to_levels(std::span<const float> key, int bits, std::span<double> out) {
  const Levels levels = levels_of(key, bits);
  const bool is_exact = bits == 16 || levels.step == 0.0;
  for (std::size_t c = 0; c < key.size(); ++c) {
    const auto x = static_cast<double>(key[c]);
    // Nearest, as x >= low.
    const auto code = static_cast<int>((x - levels.low) * levels.inverse_step + 0.5);
    out[c] = is_exact ? x : levels.low + levels.step * static_cast<double>(code);
  }
}

void RoundedKeys::append_up_to(TensorView<const float> k) {
  if (!stores_codes()) return;
  d_head_ = k.dim(1);
  const auto n_known = static_cast<Index>(low_.size());
  if (n_known >= k.dim(0)) return;
  codes_.resize(static_cast<std::size_t>(k.dim(0) * d_head_));
  for (Index t = n_known; t < k.dim(0); ++t) {
    const auto key = k.row(t);
    const Levels levels = levels_of(key, bits_);
    low_.push_back(static_cast<float>(levels.low));
    step_.push_back(levels.step);
    round_to_codes(key, levels.low, levels.inverse_step, codes_.data() + t * d_head_);
  }
}

void RoundedKeys::truncate(Index n_keys) {
  if (static_cast<Index>(low_.size()) <= n_keys) return;
  low_.resize(static_cast<std::size_t>(n_keys));
  step_.resize(low_.size());
  codes_.resize(static_cast<std::size_t>(n_keys * d_head_));
}

void RoundedKeys::dots(std::span<const double> q, TensorView<const float> k,
                       std::span<const KeyPos> keys, ScorePrecision precision,
                       std::span<double> out) const {
  if (!stores_codes()) {
    std::vector<double> key(q.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
      round_to_levels(k.row(keys[i]), bits_, key);
      out[i] = dot_of(q, key);
    }
    return;
  }
  if (precision == ScorePrecision::f64) {
    std::vector<double> key(q.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto at = static_cast<std::size_t>(keys[i]);
      const std::uint8_t* codes = codes_.data() + keys[i] * d_head_;
      const auto low = static_cast<double>(low_[at]);
      for (std::size_t c = 0; c < key.size(); ++c)
        key[c] = low + step_[at] * static_cast<double>(codes[c]);
      out[i] = dot_of(q, key);
    }
    return;
  }
  const std::vector<float> narrow(q.begin(), q.end());
  code_dots(narrow, codes_.data(), keys, out);
  const double q_sum = sum_of(q);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto at = static_cast<std::size_t>(keys[i]);
    out[i] = q_sum * static_cast<double>(low_[at]) + step_[at] * out[i];
  }
}

}  // namespace kvscope

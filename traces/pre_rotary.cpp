#include "traces/pre_rotary.hpp"

#include <algorithm>
#include <vector>

#include "core/model/rope.hpp"

namespace kvscope {

Tensor<float> PreRotary::before(Index layer, Index pos_begin, TensorView<const float> k) const {
  auto out = Tensor<float>::uninitialized(k.shape());
  const auto at = static_cast<std::size_t>(layer);
  const bool is_rotated = config_.has_rope[at];
  const RopeConfig& rope = config_.rope_of(layer);
  const std::vector<float>& frequencies = rope.frequencies;
  const std::size_t n_pairs = frequencies.size();
  std::vector<float> cosine(n_pairs);
  std::vector<float> sine(n_pairs);
  for (Index t = 0; t < k.dim(1); ++t) {
    rope_tables(frequencies, static_cast<float>(rope.amplitude), pos_begin + t, /*n_tok=*/1,
                /*lanes=*/1, cosine.data(), sine.data());
    for (Index head = 0; head < k.dim(0); ++head) {
      const auto from = k.sub(head).row(t);
      const auto to = out.view().sub(head).row(t);
      std::copy(from.begin(), from.end(), to.begin());
      for (std::size_t i = 0; is_rotated && i < n_pairs; ++i) {
        const auto c = static_cast<double>(cosine[i]);
        const auto s = static_cast<double>(sine[i]);
        const auto x = static_cast<double>(from[i]);
        const auto y = static_cast<double>(from[i + n_pairs]);
        const double squared = c * c + s * s;
        to[i] = static_cast<float>((x * c + y * s) / squared);
        to[i + n_pairs] = static_cast<float>((y * c - x * s) / squared);
      }
    }
  }
  return out;
}

}  // namespace kvscope

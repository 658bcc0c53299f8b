#include "core/model/rope.hpp"

#include <algorithm>
#include <cmath>

namespace kvscope {

void rope_tables(std::span<const float> frequencies, float amplitude, Index pos_begin, Index n_tok,
                 Index lanes, float* cos, float* sin) {
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    for (Index lane = 0; lane < lanes; ++lane) {
      const Index pos = pos_begin + std::min(lane, n_tok - 1);
      const float angle =
          static_cast<float>(pos) * frequencies[i];  // rounded, as transformers does
      const std::size_t at = i * static_cast<std::size_t>(lanes) + static_cast<std::size_t>(lane);
      cos[at] = amplitude * static_cast<float>(std::cos(static_cast<double>(angle)));
      sin[at] = amplitude * static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  }
}

}  // namespace kvscope

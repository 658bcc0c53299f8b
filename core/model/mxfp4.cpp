#include "core/model/mxfp4.hpp"

#include <cmath>
#include <limits>

namespace kvscope {

namespace {

constexpr std::array<float, 16> kHalfByte = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,
                                             4.0f,  6.0f,  -0.0f, -0.5f, -1.0f, -1.5f,
                                             -2.0f, -3.0f, -4.0f, -6.0f};

// Both values of every byte: one look-up for two.
std::array<std::array<float, 2>, 256> make_pairs() {
  std::array<std::array<float, 2>, 256> pairs{};
  for (std::size_t byte = 0; byte < pairs.size(); ++byte) {
    pairs[byte] = {kHalfByte[byte & 15U], kHalfByte[byte >> 4U]};
  }
  return pairs;
}

std::array<float, 256> make_scales() {
  std::array<float, 256> scales{};
  for (int s = 0; s < 255; ++s) scales[static_cast<std::size_t>(s)] = std::ldexp(1.0f, s - 127);
  scales[255] = std::numeric_limits<float>::quiet_NaN();
  return scales;
}

}  // namespace

void widen_mxfp4(const std::uint8_t* blocks, const std::uint8_t* scales, Index n_blocks,
                 float* out) {
  static const auto kPairs = make_pairs();
  static const auto kScales = make_scales();
  for (Index block = 0; block < n_blocks; ++block) {
    const float scale = kScales[scales[block]];
    const std::uint8_t* bytes = blocks + block * kMxfp4BlockBytes;
    float* values = out + block * kMxfp4Block;
    for (Index i = 0; i < kMxfp4BlockBytes; ++i) {
      const auto& pair = kPairs[bytes[i]];
      values[2 * i] = scale * pair[0];
      values[2 * i + 1] = scale * pair[1];
    }
  }
}

}  // namespace kvscope

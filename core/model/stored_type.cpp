#include "core/model/stored_type.hpp"

#include <bit>
#include <cassert>
#include <cmath>

namespace kvscope {

namespace {

using StoredByte = std::uint8_t;

constexpr Index kSmallBlock = 32;   // values of the simple blocks
constexpr Index kLargeBlock = 256;  // values of the "K" blocks

// One f16, widened here because a call per block costs more than the block.
float half_at(const StoredByte* bytes) {
  const std::uint32_t half = bytes[0] | std::uint32_t{bytes[1]} << 8;
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t exponent = half >> 10 & 31;
  const std::uint32_t mantissa = (half & 0x3ffu) << 13;
  if (exponent == 0) {  // zero and the subnormals
    const float size = std::ldexp(static_cast<float>(half & 0x3ffu), -24);
    return sign != 0 ? -size : size;
  }
  const std::uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | mantissa);
}

int signed_byte(StoredByte byte) {
  return byte < 128 ? byte : byte - 256;
}

// Bit `i` of a mask that lies in bytes, lowest first.
int bit_at(const StoredByte* mask, Index i) {
  return mask[i / 8] >> (i % 8) & 1;
}

// The 32 four-bit integers of 16 bytes: first the low halves, then the high ones.
std::array<int, kSmallBlock> nibbles(const StoredByte* bytes) {
  std::array<int, kSmallBlock> q{};
  for (std::size_t i = 0; i < 16; ++i) {
    q[i] = bytes[i] & 15;
    q[i + 16] = bytes[i] >> 4;
  }
  return q;
}

// ---- blocks of 32

void widen_q4_0(const StoredByte* block, float* out) {
  const float d = half_at(block);
  const auto q = nibbles(block + 2);
  for (std::size_t i = 0; i < q.size(); ++i) out[i] = d * static_cast<float>(q[i] - 8);
}

void widen_q4_1(const StoredByte* block, float* out) {
  const float d = half_at(block);
  const float m = half_at(block + 2);
  const auto q = nibbles(block + 4);
  for (std::size_t i = 0; i < q.size(); ++i) {
    const float product = d * static_cast<float>(q[i]);
    out[i] = product + m;
  }
}

void widen_q5_0(const StoredByte* block, float* out) {
  const float d = half_at(block);
  const auto q = nibbles(block + 6);
  for (Index i = 0; i < kSmallBlock; ++i) {
    const int high = bit_at(block + 2, i) << 4;
    out[i] = d * static_cast<float>((q[static_cast<std::size_t>(i)] | high) - 16);
  }
}

void widen_q5_1(const StoredByte* block, float* out) {
  const float d = half_at(block);
  const float m = half_at(block + 2);
  const auto q = nibbles(block + 8);
  for (Index i = 0; i < kSmallBlock; ++i) {
    const int high = bit_at(block + 4, i) << 4;
    const float product = d * static_cast<float>(q[static_cast<std::size_t>(i)] | high);
    out[i] = product + m;
  }
}

void widen_q8_0(const StoredByte* block, float* out) {
  const float d = half_at(block);
  for (Index i = 0; i < kSmallBlock; ++i)
    out[i] = d * static_cast<float>(signed_byte(block[2 + i]));
}

// Levels of the non-linear four-bit types.
constexpr std::array<float, 16> kLevels = {-127.0f, -104.0f, -83.0f, -65.0f, -49.0f, -35.0f,
                                           -22.0f,  -10.0f,  1.0f,   13.0f,  25.0f,  38.0f,
                                           53.0f,   69.0f,   89.0f,  113.0f};

void widen_iq4_nl(const StoredByte* block, float* out) {
  const float d = half_at(block);
  const auto q = nibbles(block + 2);
  for (std::size_t i = 0; i < q.size(); ++i) out[i] = d * kLevels[static_cast<std::size_t>(q[i])];
}

// Twice the values of the four-bit floats (matrix_rows.cpp); the scale is halved instead.
constexpr std::array<float, 16> kDoubled = {0.0f, 1.0f,  2.0f,  3.0f,  4.0f,  6.0f,  8.0f,  12.0f,
                                            0.0f, -1.0f, -2.0f, -3.0f, -4.0f, -6.0f, -8.0f, -12.0f};

void widen_mxfp4_block(const StoredByte* block, float* out) {
  const float d = std::ldexp(1.0f, block[0] - 128);
  const auto q = nibbles(block + 1);
  for (std::size_t i = 0; i < q.size(); ++i) out[i] = d * kDoubled[static_cast<std::size_t>(q[i])];
}

// ---- blocks of 256

void widen_q2_k(const StoredByte* block, float* out) {
  const StoredByte* scales = block;
  const StoredByte* quants = block + 16;
  const float d = half_at(block + 80);
  const float m = half_at(block + 82);
  // 128 values share 32 bytes, two bits each; a group has 16 values.
  for (Index i = 0; i < kLargeBlock; ++i) {
    const StoredByte scale = scales[i / 16];
    const int q = quants[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
    const float low = m * static_cast<float>(scale >> 4);
    const float product = d * static_cast<float>(scale & 15) * static_cast<float>(q);
    out[i] = product - low;
  }
}

void widen_q3_k(const StoredByte* block, float* out) {
  const StoredByte* mask = block;
  const StoredByte* quants = block + 32;
  const StoredByte* packed = block + 96;
  const float d = half_at(block + 108);
  for (Index group = 0; group < 16; ++group) {
    // Four low bits in the first eight bytes, two high bits in the last four.
    const int low = group < 8 ? packed[group] & 15 : packed[group - 8] >> 4;
    const int high = packed[8 + group % 4] >> (group / 4 * 2) & 3;
    const float scale = d * static_cast<float>((low | high << 4) - 32);
    for (Index i = group * 16; i < group * 16 + 16; ++i) {
      const int q = quants[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
      const bool has_high_bit = (mask[i % 32] >> (i / 32) & 1) != 0;
      out[i] = scale * static_cast<float>(has_high_bit ? q : q - 4);
    }
  }
}

struct ScaleAndMinimum {
  int scale;
  int minimum;
};

// Eight pairs of six bits in twelve bytes: groups 4 to 7 have their two high bits in the bytes of
// groups 0 to 3.
ScaleAndMinimum scales_of(const StoredByte* packed, Index group) {
  if (group < 4) return {packed[group] & 63, packed[group + 4] & 63};
  const StoredByte low = packed[group + 4];
  return {(low & 15) | packed[group - 4] >> 6 << 4, low >> 4 | packed[group] >> 6 << 4};
}

// Q4_K, and with a mask of fifth bits Q5_K: groups of 32 values, of which two share 32 bytes.
void widen_q45_k(const StoredByte* block, const StoredByte* fifth_bits, const StoredByte* quants,
                 float* out) {
  const float d = half_at(block);
  const float m = half_at(block + 2);
  for (Index group = 0; group < 8; ++group) {
    const ScaleAndMinimum packed = scales_of(block + 4, group);
    const float scale = d * static_cast<float>(packed.scale);
    const float low = m * static_cast<float>(packed.minimum);
    for (Index i = 0; i < 32; ++i) {
      int q = quants[group / 2 * 32 + i] >> (group % 2 * 4) & 15;
      if (fifth_bits != nullptr) q |= (fifth_bits[i] >> group & 1) << 4;
      const float product = scale * static_cast<float>(q);
      out[group * 32 + i] = product - low;
    }
  }
}

void widen_q4_k(const StoredByte* block, float* out) {
  widen_q45_k(block, nullptr, block + 16, out);
}

void widen_q5_k(const StoredByte* block, float* out) {
  widen_q45_k(block, block + 16, block + 48, out);
}

void widen_q6_k(const StoredByte* block, float* out) {
  const StoredByte* low_bits = block;
  const StoredByte* high_bits = block + 128;
  const StoredByte* scales = block + 192;
  const float d = half_at(block + 208);
  for (Index i = 0; i < kLargeBlock; ++i) {
    const Index half = i / 128;  // 128 values: 64 bytes of low bits, 32 of high bits
    const Index at = i % 128;
    const int low = low_bits[half * 64 + at % 64] >> (at / 64 * 4) & 15;
    const int high = high_bits[half * 32 + at % 32] >> (at / 32 * 2) & 3;
    const float scale = d * static_cast<float>(signed_byte(scales[i / 16]));
    out[i] = scale * static_cast<float>((low | high << 4) - 32);
  }
}

void widen_iq4_xs(const StoredByte* block, float* out) {
  const float d = half_at(block);
  const int high_scales = block[2] | block[3] << 8;
  for (Index group = 0; group < 8; ++group) {
    const int low = block[4 + group / 2] >> (group % 2 * 4) & 15;
    const int high = high_scales >> (2 * group) & 3;
    const float scale = d * static_cast<float>((low | high << 4) - 32);
    const auto q = nibbles(block + 8 + group * 16);
    for (std::size_t i = 0; i < q.size(); ++i) {
      out[group * 32 + static_cast<Index>(i)] = scale * kLevels[static_cast<std::size_t>(q[i])];
    }
  }
}

template <auto kWidenBlock>
void widen_blocks(StoredBlock block, const std::byte* src, float* dst, Index n) {
  const auto* bytes = reinterpret_cast<const StoredByte*>(src);
  for (Index i = 0; i < n; i += block.n_values, bytes += block.n_bytes) kWidenBlock(bytes, dst + i);
}

struct StoredTypeRow {
  std::string_view name;
  StoredBlock block;
  void (*widen)(StoredBlock, const std::byte*, float*, Index) = nullptr;  // null: plain floats
};

constexpr std::array<StoredTypeRow, kNumStoredTypes> kStoredTypes = {{
    {"F32", {1, 4}},
    {"F16", {1, 2}},
    {"BF16", {1, 2}},
    {"Q4_0", {kSmallBlock, 18}, widen_blocks<widen_q4_0>},
    {"Q4_1", {kSmallBlock, 20}, widen_blocks<widen_q4_1>},
    {"Q5_0", {kSmallBlock, 22}, widen_blocks<widen_q5_0>},
    {"Q5_1", {kSmallBlock, 24}, widen_blocks<widen_q5_1>},
    {"Q8_0", {kSmallBlock, 34}, widen_blocks<widen_q8_0>},
    {"Q2_K", {kLargeBlock, 84}, widen_blocks<widen_q2_k>},
    {"Q3_K", {kLargeBlock, 110}, widen_blocks<widen_q3_k>},
    {"Q4_K", {kLargeBlock, 144}, widen_blocks<widen_q4_k>},
    {"Q5_K", {kLargeBlock, 176}, widen_blocks<widen_q5_k>},
    {"Q6_K", {kLargeBlock, 210}, widen_blocks<widen_q6_k>},
    {"IQ4_NL", {kSmallBlock, 18}, widen_blocks<widen_iq4_nl>},
    {"IQ4_XS", {kLargeBlock, 136}, widen_blocks<widen_iq4_xs>},
    {"MXFP4", {kSmallBlock, 17}, widen_blocks<widen_mxfp4_block>},
}};

}  // namespace

StoredBlock block_of(StoredType type) {
  return kStoredTypes[static_cast<std::size_t>(type)].block;
}

std::string_view name_of(StoredType type) {
  return kStoredTypes[static_cast<std::size_t>(type)].name;
}

std::size_t stored_bytes(StoredType type, Index n) {
  const StoredBlock block = block_of(type);
  assert(n % block.n_values == 0);
  return static_cast<std::size_t>(n / block.n_values * block.n_bytes);
}

void widen(StoredType type, const std::byte* src, float* dst, Index n) {
  const StoredTypeRow& row = kStoredTypes[static_cast<std::size_t>(type)];
  if (row.widen != nullptr) return row.widen(row.block, src, dst, n);
  to_float(plain_dtype(type), src, dst, static_cast<std::size_t>(n));
}

}  // namespace kvscope

// MXFP4 weights as published gpt-oss checkpoints pack them: blocks of 32 four-bit floats that share
// one power of two.
//
// A row of n values is n / 32 blocks of 16 bytes; the value 2 i of a block is the low half of byte
// i, 2 i + 1 the high half. Each half is a float of one sign, two exponent and one mantissa bit
// (0, 0.5, 1, 1.5, 2, 3, 4, 6); the block's scale byte s multiplies it by 2^(s - 127), and s = 255
// means NaN (Open Compute Project, Microscaling Formats v1.0).
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/tensor/tensor.hpp"

namespace kvscope {

inline constexpr Index kMxfp4Block = 32;       // values that share a scale
inline constexpr Index kMxfp4BlockBytes = 16;  // their packed size

/// Widens n_blocks consecutive blocks, exactly. blocks [n_blocks, 16], scales [n_blocks], out
/// [n_blocks * 32].
void widen_mxfp4(const std::uint8_t* blocks, const std::uint8_t* scales, Index n_blocks,
                 float* out);

}  // namespace kvscope

// From float rows to stored bytes: conversion (HDF5's own does 8 million elements a second) with a
// check that names the element which is NaN, Inf or too large.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/tensor/typed_rows.hpp"
#include "traces/schema.hpp"

namespace kvscope {

/// Where a block of rows comes from, for messages.
struct RowOrigin {
  const schema::ArraySpec& array;
  Index head = 0;            // slot on the head axis
  Index first_position = 0;  // on the growing axis
};

/// Rows [n, row] as the array stores them: their own bytes where they have its dtype and lie in one
/// piece, else converted into `scratch`. Throws FormatError: "/layers/3/k: head slot 2, position
/// 17, element 5 is NaN"; also where a finite value becomes infinite (f16: beyond 65504).
std::span<const std::byte> encode_rows(const RowOrigin& origin, TypedRows rows,
                                       std::vector<std::byte>& scratch);

/// Throws FormatError naming the first NaN or Inf of stored rows [n, row_size] that were read back.
void require_finite(const std::string& where, Index first_position, Index row_size,
                    std::span<const float> rows);

}  // namespace kvscope

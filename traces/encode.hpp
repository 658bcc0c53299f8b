// From float rows to stored bytes: conversion with a check that names the element which is NaN, Inf
// or too large.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/tensor/tensor.hpp"
#include "traces/schema.hpp"

namespace kvscope {

/// Where a block of rows comes from, for messages.
struct RowOrigin {
  const schema::ArraySpec& array;
  Index head = 0;            // slot on the head axis
  Index first_position = 0;  // on the growing axis
};

/// Appends rows [n, row] as stored bytes to `out`. Throws FormatError: "/layers/3/k: head slot 2,
/// position 17, element 5 is NaN"; for f16 also where a finite value is beyond 65504.
void encode_rows(const RowOrigin& origin, TensorView<const float> rows,
                 std::vector<std::byte>& out);

/// Throws FormatError naming the first NaN or Inf of stored rows [n, row_size] that were read back.
void require_finite(const std::string& where, Index first_position, Index row_size,
                    std::span<const float> rows);

}  // namespace kvscope

// Linear layers on lane blocks: y = W x + b, split over threads by rows of W and groups of blocks.
#pragma once

#include <initializer_list>
#include <span>

#include "core/base/parallel.hpp"
#include "core/model/matrix.hpp"
#include "core/tensor/bf16_kernels.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

/// The common shape of lane-block activations [n_blocks, features, lanes].
struct LaneShape {
  Index n_blocks = 0;
  Index lanes = 0;
  /// Of all blocks, the first lanes in use; 0: all. Few tokens take a quicker way to the same bits.
  Index n_tok = 0;
};

/// One product y = matrix x + bias.
struct LinearProduct {
  const Matrix* matrix = nullptr;  // [n_rows, n_cols]
  const float* bias = nullptr;     // [n_rows] or null
  const float* x = nullptr;        // [n_blocks, n_cols, lanes]
  float* y = nullptr;              // [n_blocks, n_rows, lanes]
  LaneShape shape;
};

/// Computes all products side by side. Each element is one chain of multiply-adds: the split into
/// tasks never changes a bit. A tile of a matrix is read (and widened) once for all its blocks,
/// unless there are too few tiles for the threads.
/// Other than f32, activations (and weights that are not stored so) are rounded to bf16.
void linear(std::span<const LinearProduct> products, ThreadPool& pool, Matmul matmul = Matmul::f32);

/// One of several products with the same input.
struct LinearOutput {
  const Matrix* matrix = nullptr;       // [n_rows, n_cols]
  const Tensor<float>* bias = nullptr;  // [n_rows] or empty
  float* y = nullptr;                   // [n_blocks, n_rows, lanes]
};

/// For every output: y = matrix x + bias. x [n_blocks, n_cols, lanes].
void linear(std::initializer_list<LinearOutput> outputs, const float* x, LaneShape shape,
            ThreadPool& pool, Matmul matmul = Matmul::f32);

/// rows[t] = matrix x[token t], row-major: for logits. rows [n_tok, n_rows of the matrix].
void linear_to_rows(const Matrix& matrix, const float* x, LaneShape shape, TensorView<float> rows,
                    ThreadPool& pool, Matmul matmul = Matmul::f32);

}  // namespace kvscope

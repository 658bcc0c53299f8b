#include "core/model/linear.hpp"

#include <algorithm>
#include <vector>

#include "core/tensor/lane_kernels.hpp"

namespace kvscope {

namespace {

constexpr Index kMaxTileRows = 64;
constexpr Index kMaxScratchFloats = 1 << 17;  // 512 KiB: a widened tile stays in the second-level cache

// Rows of W per task and lane blocks per task, so that every thread gets several tasks.
struct Tiling {
  Index rows;
  Index blocks;
};

// n_rows: of all products that run side by side; n_blocks: of the longest one.
Tiling choose_tiling(Index n_rows, Index n_cols, Index n_blocks, int n_threads) {
  Tiling tiling{kMaxTileRows, n_blocks};
  tiling.rows = std::clamp<Index>(kMaxScratchFloats / (n_cols + 16) / 8 * 8, 8, kMaxTileRows);
  const Index wanted = 3 * n_threads;
  while (tiling.rows > 16 && (n_rows + tiling.rows - 1) / tiling.rows < wanted) tiling.rows /= 2;
  const Index n_row_tiles = (n_rows + tiling.rows - 1) / tiling.rows;
  if (n_row_tiles < wanted) {
    const Index n_parts = std::min(n_blocks, (wanted + n_row_tiles - 1) / n_row_tiles);
    tiling.blocks = (n_blocks + n_parts - 1) / n_parts;
  }
  return tiling;
}

using Scratch = std::vector<Tensor<float>>;

float* scratch_of(Scratch& scratch, int worker, Index size) {
  auto& memory = scratch[static_cast<std::size_t>(worker)];
  if (memory.count() < size) memory = Tensor<float>::uninitialized({size});
  return memory.data();
}

}  // namespace

void linear(std::span<const LinearProduct> products, ThreadPool& pool) {
  struct Task {
    const LinearProduct* product;
    Index row_begin, row_end, block_begin, block_end;
  };
  std::vector<Task> tasks;
  Index n_all_rows = 0;
  Index most_cols = 0;
  Index most_blocks = 1;
  for (const LinearProduct& product : products) {
    n_all_rows += product.matrix->n_rows();
    most_cols = std::max(most_cols, product.matrix->n_cols());
    most_blocks = std::max(most_blocks, product.shape.n_blocks);
  }
  const Tiling tiling = choose_tiling(n_all_rows, most_cols, most_blocks, pool.n_threads());
  for (const LinearProduct& product : products) {
    const Index n_rows = product.matrix->n_rows();
    const Index n_blocks = product.shape.n_blocks;
    for (Index r = 0; r < n_rows; r += tiling.rows) {
      for (Index b = 0; b < n_blocks; b += tiling.blocks) {
        tasks.push_back({&product, r, std::min(n_rows, r + tiling.rows), b,
                         std::min(n_blocks, b + tiling.blocks)});
      }
    }
  }
  Scratch scratch(static_cast<std::size_t>(pool.n_threads()));
  pool.parallel_for(static_cast<Index>(tasks.size()), [&](Index index, int worker) {
    const Task& task = tasks[static_cast<std::size_t>(index)];
    const LinearProduct& product = *task.product;
    const Matrix& matrix = *product.matrix;
    const Index n_cols = matrix.n_cols();
    const Index lanes = product.shape.lanes;
    Index stride = 0;
    const float* w =
        matrix.rows(task.row_begin, task.row_end,
                    scratch_of(scratch, worker, tiling.rows * (most_cols + 16)), stride);
    for (Index block = task.block_begin; block < task.block_end; ++block) {
      lane_matmul(w, stride, task.row_end - task.row_begin, n_cols,
                  product.bias == nullptr ? nullptr : product.bias + task.row_begin,
                  product.x + block * n_cols * lanes,
                  product.y + (block * matrix.n_rows() + task.row_begin) * lanes, lanes);
    }
  });
}

void linear(std::initializer_list<LinearOutput> outputs, const float* x, LaneShape shape,
            ThreadPool& pool) {
  std::vector<LinearProduct> products;
  for (const LinearOutput& output : outputs) {
    const bool has_bias = output.bias != nullptr && output.bias->count() > 0;
    products.push_back(
        {output.matrix, has_bias ? output.bias->data() : nullptr, x, output.y, shape});
  }
  linear(products, pool);
}

void linear_to_rows(const Matrix& matrix, const float* x, LaneShape shape, TensorView<float> rows,
                    ThreadPool& pool) {
  const Index n_cols = matrix.n_cols();
  const Index n_tok = rows.dim(0);
  const Index tile = std::clamp<Index>(kMaxScratchFloats / (n_cols + 16) / 8 * 8, 8, kMaxTileRows);
  const Index n_tiles = (matrix.n_rows() + tile - 1) / tile;
  Scratch scratch(static_cast<std::size_t>(pool.n_threads()));
  pool.parallel_for(n_tiles, [&](Index index, int worker) {
    const Index begin = index * tile;
    const Index end = std::min(matrix.n_rows(), begin + tile);
    float* product = scratch_of(scratch, worker, tile * (n_cols + 16 + shape.lanes));  // [tile, lanes]
    Index stride = 0;
    const float* w = matrix.rows(begin, end, product + tile * shape.lanes, stride);
    for (Index block = 0; block < shape.n_blocks; ++block) {
      const Index first = block * shape.lanes;
      if (first >= n_tok) break;
      lane_matmul(w, stride, end - begin, n_cols, nullptr, x + block * n_cols * shape.lanes, product,
                  shape.lanes);
      rows_from_lanes(product, end - begin, shape.lanes, std::min(shape.lanes, n_tok - first),
                      &rows(first, begin), rows.stride(0));
    }
  });
}

}  // namespace kvscope

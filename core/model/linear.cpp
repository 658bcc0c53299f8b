#include "core/model/linear.hpp"

#include <algorithm>
#include <cstdlib>

#include "core/tensor/dtype.hpp"
#include "core/tensor/lane_kernels.hpp"
#include "core/tensor/row_kernels.hpp"

namespace kvscope {

namespace {

constexpr Index kMaxTileRows = 64;
// Each task of a bf16 kernel reads all activations: few tall tasks.
constexpr Index kMaxBf16TileRows = 256;
constexpr Index kRowTileRows = 32;  // of a task with few tokens
// 512 KiB: a widened tile stays in the second-level cache.
constexpr Index kMaxScratchFloats = 1 << 17;

bool uses_pairs(Matmul matmul) {
  return matmul == Matmul::bf16_amx || matmul == Matmul::bf16_avx512;
}

// Rows of W per task and lane blocks per task, so that every thread gets several tasks.
struct Tiling {
  Index rows;
  Index blocks;
};

// n_rows: of all products that run side by side; n_blocks: of the longest one.
Tiling choose_tiling(Index n_rows, Index n_cols, Index n_blocks, Matmul matmul, int n_threads) {
  Tiling tiling{kMaxTileRows, n_blocks};
  tiling.rows = std::clamp<Index>(kMaxScratchFloats / (n_cols + 16) / 8 * 8, 8, kMaxTileRows);
  if (uses_pairs(matmul)) tiling.rows = kMaxBf16TileRows;
  const Index wanted = 3 * n_threads;
  while (tiling.rows > 16 && (n_rows + tiling.rows - 1) / tiling.rows < wanted) tiling.rows /= 2;
  const Index n_row_tiles = (n_rows + tiling.rows - 1) / tiling.rows;
  if (n_row_tiles < wanted) {
    const Index n_parts = std::min(n_blocks, (wanted + n_row_tiles - 1) / n_row_tiles);
    tiling.blocks = (n_blocks + n_parts - 1) / n_parts;
  }
  return tiling;
}

// The input of products in the form that the chosen kernel reads.
struct LinearInput {
  const float* source = nullptr;  // x as it was given
  const float* x = nullptr;       // [n_blocks, k, lanes]
  Index k = 0;
  LaneShape shape;
  Tensor<float> floats;         // few tokens: rows [n_tok, k]; bf16_portable: x rounded; else empty
  Tensor<std::uint16_t> pairs;  // [n_blocks, bf16_pairs_size]; empty without a bf16 kernel

  bool has_rows() const { return floats.count() > 0 && x == source; }
};

LinearInput prepare(const float* x, Index k, LaneShape shape, Matmul matmul, ThreadPool& pool) {
  LinearInput input;
  input.source = input.x = x;
  input.k = k;
  input.shape = shape;
  const Index size = k * shape.lanes;
  if (uses_pairs(matmul)) {
    const Index n = bf16_pairs_size(k, shape.lanes);
    input.pairs = Tensor<std::uint16_t>::uninitialized({shape.n_blocks, n});
    pool.parallel_for(shape.n_blocks, [&](Index block, int) {
      bf16_pairs_from_lanes(x + block * size, k, shape.lanes, input.pairs.data() + block * n);
    });
    return input;
  }
  if (matmul == Matmul::bf16_portable) {
    input.floats = Tensor<float>::uninitialized({shape.n_blocks, size});
    pool.parallel_for(shape.n_blocks, [&](Index block, int) {
      std::vector<std::uint16_t> rounded(static_cast<std::size_t>(size));
      from_float(x + block * size, DType::bf16, rounded.data(), rounded.size());
      to_float(DType::bf16, rounded.data(), input.floats.data() + block * size, rounded.size());
    });
    input.x = input.floats.data();
    return input;
  }
  if (shape.n_blocks == 1 && shape.n_tok > 0 && shape.n_tok <= kMaxRowTokens) {
    input.floats = Tensor<float>::uninitialized({shape.n_tok, k});
    rows_from_lanes(x, k, shape.lanes, shape.n_tok, input.floats.data(), k);
  }
  return input;
}

// A worker's memory, grown as needed.
struct LinearScratch {
  Tensor<float> floats;
  Tensor<std::uint16_t> halves;

  float* get_floats(Index size) {
    if (floats.count() < size) floats = Tensor<float>::uninitialized({size});
    return floats.data();
  }
  std::uint16_t* get_halves(Index size) {
    if (halves.count() < size) halves = Tensor<std::uint16_t>::uninitialized({size});
    return halves.data();
  }
};

// A tile of rows of one product.
struct LinearTile {
  const Matrix* matrix;
  const float* bias;  // of the first row of the tile, or null
  Index begin, end;
};

// The rows of a tile rounded to bf16, as floats.
const float* rounded_rows(const LinearTile& tile, LinearScratch& scratch, Index& stride) {
  const Index n = tile.end - tile.begin;
  const Index k = tile.matrix->n_cols();
  float* const floats = scratch.get_floats(n * (k + 16));
  const std::uint16_t* halves =
      tile.matrix->rows_bf16(tile.begin, tile.end, floats, scratch.get_halves(n * k));
  to_float(DType::bf16, halves, floats, static_cast<std::size_t>(n * k));
  stride = k;
  return floats;
}

// y [block_end - block_begin] blocks, y_stride floats apart, each [rows of the tile, lanes].
void multiply(const LinearTile& tile, const LinearInput& input, Index block_begin, Index block_end,
              Matmul matmul, float* y, Index y_stride, LinearScratch& scratch) {
  const Index n = tile.end - tile.begin;
  const Index k = input.k;
  const Index lanes = input.shape.lanes;
  const Matrix& matrix = *tile.matrix;
  if (uses_pairs(matmul)) {
    const bool is_ready = matrix.ready_bf16(tile.begin) != nullptr;
    const std::uint16_t* w = matrix.rows_bf16(tile.begin, tile.end,
                                              is_ready ? nullptr : scratch.get_floats(n * (k + 16)),
                                              is_ready ? nullptr : scratch.get_halves(n * k));
    const Index n_pairs = bf16_pairs_size(k, lanes);
    bf16_matmul(matmul, w, k, n, k, tile.bias,
                {input.pairs.data() + block_begin * n_pairs, n_pairs, y, y_stride,
                 block_end - block_begin, lanes});
    return;
  }
  const bool by_rows = input.has_rows() && row_matmul_takes(n, k, input.shape.n_tok);
  if (by_rows) {
    if (const std::uint16_t* w = matrix.stored_bf16(tile.begin)) {
      row_matmul(w, k, n, k, tile.bias, input.floats.data(), input.shape.n_tok, y, lanes);
      return;
    }
  }
  Index stride = 0;
  const float* w =
      matmul == Matmul::bf16_portable
          ? rounded_rows(tile, scratch, stride)
          : matrix.rows(tile.begin, tile.end, scratch.get_floats(n * (k + 16)), stride);
  if (by_rows) {
    row_matmul(w, stride, n, k, tile.bias, input.floats.data(), input.shape.n_tok, y, lanes);
    return;
  }
  for (Index block = block_begin; block < block_end; ++block) {
    lane_matmul(w, stride, n, k, tile.bias, input.x + block * k * lanes,
                y + (block - block_begin) * y_stride, lanes);
  }
}

}  // namespace

void linear(std::span<const LinearProduct> products, ThreadPool& pool, Matmul matmul) {
  struct Task {
    const LinearProduct* product;
    const LinearInput* input;
    Index row_begin, row_end, block_begin, block_end;
  };
  std::vector<Task> tasks;
  std::vector<LinearInput> inputs;
  inputs.reserve(products.size());  // tasks point into it
  Index n_all_rows = 0;
  Index most_cols = 0;
  Index most_blocks = 1;
  for (const LinearProduct& product : products) {
    n_all_rows += product.matrix->n_rows();
    most_cols = std::max(most_cols, product.matrix->n_cols());
    most_blocks = std::max(most_blocks, product.shape.n_blocks);
  }
  const Tiling tiling = choose_tiling(n_all_rows, most_cols, most_blocks, matmul, pool.n_threads());
  for (const LinearProduct& product : products) {
    const Index n_rows = product.matrix->n_rows();
    const Index n_blocks = product.shape.n_blocks;
    const auto same = [&](const LinearInput& input) { return input.source == product.x; };
    auto input = std::find_if(inputs.begin(), inputs.end(), same);
    if (input == inputs.end()) {
      inputs.push_back(prepare(product.x, product.matrix->n_cols(), product.shape, matmul, pool));
      input = inputs.end() - 1;
    }
    const Index tile_rows = input->has_rows() ? kRowTileRows : tiling.rows;
    for (Index r = 0; r < n_rows; r += tile_rows) {
      for (Index b = 0; b < n_blocks; b += tiling.blocks) {
        tasks.push_back({&product, &*input, r, std::min(n_rows, r + tile_rows), b,
                         std::min(n_blocks, b + tiling.blocks)});
      }
    }
  }
  std::vector<LinearScratch> scratch(static_cast<std::size_t>(pool.n_threads()));
  pool.parallel_for(static_cast<Index>(tasks.size()), [&](Index index, int worker) {
    const Task& task = tasks[static_cast<std::size_t>(index)];
    const LinearProduct& product = *task.product;
    const Index n_rows = product.matrix->n_rows();
    const Index lanes = product.shape.lanes;
    const LinearTile tile{product.matrix,
                          product.bias == nullptr ? nullptr : product.bias + task.row_begin,
                          task.row_begin, task.row_end};
    multiply(tile, *task.input, task.block_begin, task.block_end, matmul,
             product.y + (task.block_begin * n_rows + task.row_begin) * lanes, n_rows * lanes,
             scratch[static_cast<std::size_t>(worker)]);
  });
}

void linear(std::initializer_list<LinearOutput> outputs, const float* x, LaneShape shape,
            ThreadPool& pool, Matmul matmul) {
  std::vector<LinearProduct> products;
  for (const LinearOutput& output : outputs) {
    const bool has_bias = output.bias != nullptr && output.bias->count() > 0;
    products.push_back(
        {output.matrix, has_bias ? output.bias->data() : nullptr, x, output.y, shape});
  }
  linear(products, pool, matmul);
}

void linear_to_rows(const Matrix& matrix, const float* x, LaneShape shape, TensorView<float> rows,
                    ThreadPool& pool, Matmul matmul) {
  const Index n_cols = matrix.n_cols();
  const Index n_tok = rows.dim(0);
  const Index tile =
      std::clamp<Index>(kMaxScratchFloats / (n_cols + 16) / 8 * 8, kRowTileRows, kMaxTileRows);
  const Index n_tiles = (matrix.n_rows() + tile - 1) / tile;
  const LinearInput input = prepare(x, n_cols, shape, matmul, pool);
  std::vector<LinearScratch> scratch(static_cast<std::size_t>(pool.n_threads()));
  std::vector<Tensor<float>> outputs(static_cast<std::size_t>(pool.n_threads()));
  pool.parallel_for(n_tiles, [&](Index index, int worker) {
    const Index begin = index * tile;
    const Index end = std::min(matrix.n_rows(), begin + tile);
    auto& product = outputs[static_cast<std::size_t>(worker)];
    if (product.count() == 0)
      product = Tensor<float>::uninitialized({shape.n_blocks, tile * shape.lanes});
    multiply({&matrix, nullptr, begin, end}, input, 0, shape.n_blocks, matmul, product.data(),
             tile * shape.lanes, scratch[static_cast<std::size_t>(worker)]);
    for (Index block = 0; block < shape.n_blocks; ++block) {
      const Index first = block * shape.lanes;
      if (first >= n_tok) break;
      rows_from_lanes(product.sub(block).data(), end - begin, shape.lanes,
                      std::min(shape.lanes, n_tok - first), &rows(first, begin), rows.stride(0));
    }
  });
}

}  // namespace kvscope

// Scores of many rows (keys, page boxes) by a few vectors per KV head, one pass over the rows.
#pragma once

#include "core/cuda/call_shape.hpp"
#include "core/cuda/device.hpp"

namespace kvscope::gpu {

inline constexpr int kMostVectors = 16;
inline constexpr int kBuckets = 2048;  // of equal width, over the scores of a list

/// How products become scores.
enum class Reduce {
  largest,  // of the vectors' products, one score per row
  each,     // a row of scores for each vector
};

/// What vectors are made from.
enum class Vectors {
  parts,  // f32 [n_batch, n_kv, n_parts, 16, width], summed over the parts: a group's heads apart
  /// Queries q [n_batch, n_kv, group, width / 2] of dtype as (max(q, 0), min(q, 0)): n_parts = 1
  /// and n_vectors = group, or n_parts = group and one vector, their sum.
  doubled,
};

/// Where a batch's rows and vectors are.
struct RowScores {
  const void* rows = nullptr;  // [n_batch, n_kv, capacity, width] of dtype
  std::int64_t capacity = 0;
  DType dtype = DType::bf16;
  int width = 0;  // 64, 128, 256
  int n_batch = 1;
  int n_kv = 1;
  Vectors form = Vectors::parts;
  const void* vectors = nullptr;
  int n_parts = 1;
  int n_vectors = kMostVectors;          // of each; each: scores of the rest are not written
  const std::int32_t* n_past = nullptr;  // [n_batch]
  int n_more = 0;                        // rows: (n_past + n_more + page_size - 1) / page_size
  int page_size = 1;
  /// bf16: the kernel ahead in the stream writes no row before n_past / page_size: these are
  /// fetched before it has ended.
  bool rows_are_there = false;
  Reduce reduce = Reduce::largest;
  const float* factors =
      nullptr;              // [n_batch, n_kv, capacity] or null; a row's score is multiplied by it
  float* scores = nullptr;  // [n_batch, n_kv, (each: n_vectors,) stride]
  std::int64_t stride = 0;
  /// [n_batch, n_kv, kBuckets] or null: scores in [-1, 1] are counted here (largest only).
  std::int32_t* histogram = nullptr;
};

/// Products in f32 of exact rows: vectors go to the tensor cores as three bf16 terms, which hold
/// all 24 bits. Equal rows get equal scores.
void score_rows(const RowScores& call, StreamHandle stream);

/// The bucket of a score where the range is [-1, 1].
__host__ __device__ inline int bucket_of_cosine(float score) {
  const int bucket = static_cast<int>((score + 1.0f) * (kBuckets / 2));
  return bucket < 0 ? 0 : bucket >= kBuckets ? kBuckets - 1 : bucket;
}

}  // namespace kvscope::gpu

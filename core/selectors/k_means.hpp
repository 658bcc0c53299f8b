// k-means on rows of floats, the same for every machine's threads and for live and replayed runs:
// what product quantisation (PQCache) and clusters of keys (RetroInfer, Double-P) are made with.
//
// Starts from rows drawn without replacement, named by a seed; then Lloyd's steps in a fixed order.
// Products are in f32, means in f64. Equal distances: the cluster of the lowest index. A cluster
// without rows keeps its centroid.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/rng.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

enum class KMeansSpace {
  euclidean,  // the nearest centroid; a centroid is the mean of its rows
  spherical,  // the centroid of the largest cosine; its direction is that of the sum of its rows'
              // unit vectors
};

struct KMeansOptions {
  Index n_clusters = 64;
  Index n_iterations = 10;
  KMeansSpace space = KMeansSpace::euclidean;
};

struct KMeans {
  Tensor<float> centroids;  // [k, width], k = min(n_clusters, rows); spherical: unit vectors
  std::vector<std::int32_t> labels;  // [n_rows] the centroid of each row
};

/// rows [n >= 1, width]. The last labels belong to the last centroids. On the calling thread.
KMeans k_means(TensorView<const float> rows, const KMeansOptions& options, const CounterRng& rng);

/// The centroid of each row, as k_means assigns them; labels [n_rows].
void nearest_centroids(TensorView<const float> rows, TensorView<const float> centroids,
                       KMeansSpace space, std::span<std::int32_t> labels);

}  // namespace kvscope

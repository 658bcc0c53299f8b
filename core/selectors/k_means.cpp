#include "core/selectors/k_means.hpp"

#include <algorithm>

#include "core/attention/score_rows.hpp"
#include "core/base/evenly_spaced.hpp"
#include "core/selectors/key_dots.hpp"

namespace kvscope {

namespace {

constexpr Index kRowBlock = 64;  // rows that are compared with all centroids at a time

/// Row numbers drawn without replacement, ascending.
std::vector<Index> drawn_rows(Index n_rows, Index n, const CounterRng& rng) {
  std::vector<Index> order = all_in(0, n_rows);
  for (Index i = 0; i < n; ++i) {
    const auto n_left = static_cast<std::uint64_t>(n_rows - i);
    std::swap(order[static_cast<std::size_t>(i)],
              order[static_cast<std::size_t>(i) +
                    static_cast<std::size_t>(rng.bits(static_cast<std::uint64_t>(i)) % n_left)]);
  }
  order.resize(static_cast<std::size_t>(n));
  std::sort(order.begin(), order.end());
  return order;
}

void make_unit(std::span<float> row) {
  const double norm = norm_of(row);
  if (norm > 0.0) {
    for (float& x : row) x = static_cast<float>(static_cast<double>(x) / norm);
  }
}

/// Moves each centroid to the mean of its rows (spherical: of their unit vectors, as a unit
/// vector).
void move_centroids(TensorView<const float> rows, KMeansSpace space,
                    std::span<const std::int32_t> labels, Tensor<float>& centroids) {
  const auto width = static_cast<std::size_t>(rows.dim(1));
  const auto n_clusters = static_cast<std::size_t>(centroids.dim(0));
  std::vector<double> sums(n_clusters * width, 0.0);
  std::vector<Index> counts(n_clusters, 0);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto cluster = static_cast<std::size_t>(labels[i]);
    const auto row = rows.row(static_cast<Index>(i));
    double factor = 1.0;
    if (space == KMeansSpace::spherical) {
      const double norm = norm_of(row);
      factor = norm > 0.0 ? 1.0 / norm : 0.0;
    }
    double* sum = sums.data() + cluster * width;
    for (std::size_t c = 0; c < width; ++c) sum[c] += factor * static_cast<double>(row[c]);
    ++counts[cluster];
  }
  for (std::size_t cluster = 0; cluster < n_clusters; ++cluster) {
    if (counts[cluster] == 0) continue;
    const auto centroid = centroids.view().row(static_cast<Index>(cluster));
    for (std::size_t c = 0; c < width; ++c)
      centroid[c] =
          static_cast<float>(sums[cluster * width + c] / static_cast<double>(counts[cluster]));
    if (space == KMeansSpace::spherical) make_unit(centroid);
  }
}

}  // namespace

void nearest_centroids(TensorView<const float> rows, TensorView<const float> centroids,
                       KMeansSpace space, std::span<std::int32_t> labels) {
  const Index n_clusters = centroids.dim(0);
  // |x - c|^2 is least where x.c - |c|^2 / 2 is largest.
  std::vector<double> offsets(static_cast<std::size_t>(n_clusters), 0.0);
  if (space == KMeansSpace::euclidean) {
    for (Index i = 0; i < n_clusters; ++i) {
      const double norm = norm_of(centroids.row(i));
      offsets[static_cast<std::size_t>(i)] = -0.5 * norm * norm;
    }
  }
  KeyDots dots;
  dots.set_precision(ScorePrecision::f32);
  std::vector<double> block;
  for (Index first = 0; first < rows.dim(0); first += kRowBlock) {
    const Index end = std::min(first + kRowBlock, rows.dim(0));
    block.clear();
    for (Index i = first; i < end; ++i) {
      const auto row = rows.row(i);
      block.insert(block.end(), row.begin(), row.end());
    }
    dots.compute(block, end - first, centroids, {0, n_clusters});
    for (Index i = first; i < end; ++i) {
      const std::span<double> products = dots.row(i - first);
      double best = products[0] + offsets[0];
      std::int32_t label = 0;
      for (std::size_t cluster = 1; cluster < offsets.size(); ++cluster) {
        const double value = products[cluster] + offsets[cluster];
        if (value > best) {
          best = value;
          label = static_cast<std::int32_t>(cluster);
        }
      }
      labels[static_cast<std::size_t>(i)] = label;
    }
  }
}

KMeans k_means(TensorView<const float> rows, const KMeansOptions& options, const CounterRng& rng) {
  const Index n_rows = rows.dim(0);
  const Index n_clusters = std::min(options.n_clusters, n_rows);
  KMeans out;
  out.centroids = Tensor<float>({n_clusters, rows.dim(1)});
  Index next = 0;
  for (const Index i : drawn_rows(n_rows, n_clusters, rng)) {
    const auto centroid = out.centroids.view().row(next++);
    std::copy_n(rows.row(i).data(), centroid.size(), centroid.data());
    if (options.space == KMeansSpace::spherical) make_unit(centroid);
  }
  out.labels.resize(static_cast<std::size_t>(n_rows));
  std::vector<std::int32_t> before;
  nearest_centroids(rows, out.centroids.view(), options.space, out.labels);
  for (Index step = 0; step < options.n_iterations; ++step) {
    move_centroids(rows, options.space, out.labels, out.centroids);
    before = out.labels;
    nearest_centroids(rows, out.centroids.view(), options.space, out.labels);
    if (before == out.labels) break;
  }
  return out;
}

}  // namespace kvscope

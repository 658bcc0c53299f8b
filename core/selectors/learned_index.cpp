#include "core/selectors/learned_index.hpp"

#include <fmt/format.h>
#include <Eigen/Dense>
#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/json.hpp"

namespace kvscope {

namespace {

constexpr double kRidge = 1e-4;        // of the queries' mean eigenvalue
constexpr Index kIndexRowBlock = 256;  // rows widened at once: bounds the memory, feeds the update

/// Adds the sum of x x^T over rows that `fill` writes as columns, block by block.
template <class Fill>
void add_scatter(Index n_rows, Eigen::MatrixXd& scatter, const Fill& fill) {
  Eigen::MatrixXd block(scatter.rows(), kIndexRowBlock);
  for (Index first = 0; first < n_rows; first += kIndexRowBlock) {
    const Index n = std::min(kIndexRowBlock, n_rows - first);
    for (Index i = 0; i < n; ++i) fill(first + i, block.col(i));
    scatter.selfadjointView<Eigen::Lower>().rankUpdate(block.leftCols(n));
  }
}

Eigen::VectorXd widened_row(std::span<const float> row) {
  return Eigen::Map<const Eigen::VectorXf>(row.data(), static_cast<Index>(row.size()))
      .cast<double>();
}

/// Mean of q q^T over the positions and the query heads of a KV head.
Eigen::MatrixXd query_moment(const TraceSource& text, Index layer, Index kv_head) {
  const TraceInfo& info = text.info();
  Eigen::MatrixXd sum = Eigen::MatrixXd::Zero(info.d_head, info.d_head);
  for (Index q_head = kv_head * info.group(); q_head < (kv_head + 1) * info.group(); ++q_head) {
    const Tensor<float> q = text.read_q(layer, q_head, {0, info.n_tokens});
    add_scatter(info.n_tokens, sum,
                [&](Index t, auto column) { column = widened_row(q.view().row(t)); });
  }
  return sum.selfadjointView<Eigen::Lower>();
}

/// Mean of (k - mean)(k - mean)^T of the heads' keys after each other, [n d, n d].
Eigen::MatrixXd key_covariance(const TraceSource& text, Index layer, TokenRange kv_heads) {
  const TraceInfo& info = text.info();
  const Index d = info.d_head;
  std::vector<Tensor<float>> keys;
  Eigen::VectorXd mean = Eigen::VectorXd::Zero(kv_heads.size() * d);
  for (Index head = kv_heads.begin; head < kv_heads.end; ++head) {
    keys.push_back(text.read_k(layer, head, {0, info.n_tokens}));
    for (Index t = 0; t < info.n_tokens; ++t)
      mean.segment((head - kv_heads.begin) * d, d) += widened_row(keys.back().view().row(t));
  }
  mean /= static_cast<double>(info.n_tokens);
  Eigen::MatrixXd sum = Eigen::MatrixXd::Zero(mean.size(), mean.size());
  add_scatter(info.n_tokens, sum, [&](Index t, auto column) {
    for (std::size_t i = 0; i < keys.size(); ++i)
      column.segment(static_cast<Index>(i) * d, d) = widened_row(keys[i].view().row(t));
    column -= mean;
  });
  return sum.selfadjointView<Eigen::Lower>();
}

struct Roots {
  Eigen::MatrixXd root, inverse;  // of a second moment with its ridge
};

Roots roots_of(Eigen::MatrixXd moment) {
  const double mean = moment.trace() / static_cast<double>(moment.rows());
  moment.diagonal().array() += mean > 0.0 ? kRidge * mean : 1.0;  // no queries: the identity
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solved(moment);
  const Eigen::VectorXd roots = solved.eigenvalues().cwiseMax(0.0).cwiseSqrt();
  const Eigen::MatrixXd& axes = solved.eigenvectors();
  return {axes * roots.asDiagonal() * axes.transpose(),
          axes * roots.cwiseInverse().asDiagonal() * axes.transpose()};
}

Tensor<double> tensor_of(const Eigen::MatrixXd& matrix) {
  Tensor<double> out(Shape{matrix.rows(), matrix.cols()});
  for (Index r = 0; r < matrix.rows(); ++r) {
    for (Index c = 0; c < matrix.cols(); ++c) out(r, c) = matrix(r, c);
  }
  return out;
}

}  // namespace

IndexMaps fit_index_maps(const TraceSource& text, Index layer, TokenRange kv_heads, Index rank) {
  const Index d = text.info().d_head;
  const Index n = kv_heads.size() * d;
  if (rank < 1 || rank > n) {
    throw ConfigError(
        "index vectors of {} channels: expected 1 to {} (KV heads that share them, times d_head)",
        rank, n);
  }
  std::vector<Roots> roots;
  Eigen::MatrixXd left = Eigen::MatrixXd::Zero(n, n);  // Cq^(1/2), a block per KV head
  for (Index head = kv_heads.begin; head < kv_heads.end; ++head) {
    roots.push_back(roots_of(query_moment(text, layer, head)));
    left.block((head - kv_heads.begin) * d, (head - kv_heads.begin) * d, d, d) = roots.back().root;
  }
  // The left singular vectors of Cq^(1/2) Ck^(1/2) are the eigenvectors of its square.
  const Eigen::MatrixXd square = left * key_covariance(text, layer, kv_heads) * left;
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solved(square);
  const Eigen::VectorXd values = solved.eigenvalues().cwiseMax(0.0).reverse();  // falling
  Eigen::MatrixXd axes = solved.eigenvectors().rowwise().reverse().leftCols(rank);
  for (Index r = 0; r < rank; ++r) {  // the solver's signs are not ours: the largest is positive
    Index largest = 0;
    axes.col(r).cwiseAbs().maxCoeff(&largest);
    if (axes(largest, r) < 0.0) axes.col(r) = -axes.col(r);
  }
  IndexMaps maps;
  for (std::size_t i = 0; i < roots.size(); ++i) {
    const auto rows = axes.middleRows(static_cast<Index>(i) * d, d);
    maps.of_queries.push_back(tensor_of(rows.transpose() * roots[i].inverse));
    maps.of_keys.push_back(tensor_of(rows.transpose() * roots[i].root));
  }
  const double total = values.sum();
  maps.explained = total > 0.0 ? values.head(rank).sum() / total : 1.0;
  return maps;
}

Learned LearnedIndex::to_file() const {
  Json explained_shares = Json::array();
  double mean = 0.0;
  for (const auto& [layer, share] : explained) {
    explained_shares.push_back(share);
    mean += share / static_cast<double>(explained.size());
  }
  Learned out = queries.learned("queries", "");
  out.values["keys"] = keys.learned("keys", "").values["keys"];
  out.values["channels"] = Json::array({rank});
  out.values["shared"] = Json::array({is_shared ? 1 : 0});
  out.values["explained"] = explained_shares;
  out.options = {{"per", is_shared ? "layer" : "kv_head"}, {"d-index", rank}};
  out.summary = fmt::format(
      "index vectors of {} channels {} in {} layers; they keep {:.3f} of the scores' variance",
      rank, is_shared ? "for all KV heads" : "per KV head", keys.layers().size(), mean);
  if (n_positions > 0) {
    out.summary += fmt::format(
        "; learned at positions 0 to {}: further on, where keys are turned as none was here, they "
        "rank badly",
        n_positions - 1);
  }
  return out;
}

LearnedIndex fit_index(const TraceSource& text, std::span<const Index> layers, Index rank,
                       bool is_shared, ThreadPool& pool) {
  const Index n_kv = text.info().n_kv;
  const Index n_parts = is_shared ? 1 : n_kv;
  std::vector<IndexMaps> parts(layers.size() * static_cast<std::size_t>(n_parts));
  pool.parallel_for(static_cast<Index>(parts.size()), [&](Index i, int) {
    const Index head = i % n_parts;
    parts[static_cast<std::size_t>(i)] =
        fit_index_maps(text, layers[static_cast<std::size_t>(i / n_parts)],
                       is_shared ? TokenRange{0, n_kv} : TokenRange{head, head + 1}, rank);
  });
  LearnedIndex out;
  out.n_positions = text.info().n_tokens;
  out.is_shared = is_shared;
  out.rank = rank;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Index layer = layers[i / static_cast<std::size_t>(n_parts)];
    out.explained[layer] += parts[i].explained / static_cast<double>(n_parts);
    for (std::size_t h = 0; h < parts[i].of_keys.size(); ++h) {
      const auto head = static_cast<Index>(h) + static_cast<Index>(i) % n_parts;
      const auto q = parts[i].of_queries[h].flat();
      const auto k = parts[i].of_keys[h].flat();
      out.queries.put(layer, head, {q.begin(), q.end()});
      out.keys.put(layer, head, {k.begin(), k.end()});
    }
  }
  return out;
}

LearnedIndex load_index(const ArtifactFile& file, const AttentionShape& shape) {
  check_shape(file.get(), shape);
  const auto one = [&](const char* name, Index low, Index high) {
    return file.indices(file.list(name, 1), 1, low, high, name).front();
  };
  LearnedIndex out;
  out.is_shared = one("shared", 0, 1) == 1;
  out.rank = one("channels", 1, shape.d_head * (out.is_shared ? shape.n_kv : 1));
  out.queries.load(file, "queries", shape, out.rank * shape.d_head);
  out.keys.load(file, "keys", shape, out.rank * shape.d_head);
  return out;
}

}  // namespace kvscope

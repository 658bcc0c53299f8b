#include "core/selectors/index_vectors.hpp"

#include <algorithm>
#include <cmath>

#include "core/base/error.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/owners.hpp"

namespace kvscope {

namespace {

/// Rounds one vector in place.
void round_index_vector(std::span<double> vector, IndexType type) {
  if (type == IndexType::exact) return;
  round_scores(vector, type == IndexType::fp8 ? ScoreType::fp8 : ScoreType::bf16);
}

}  // namespace

double index_vector_bytes(Index width, IndexType type) {
  const auto n = static_cast<double>(width);
  return type == IndexType::fp8 ? n + 4.0 : n * kBytesPerElement;
}

IndexKeys::IndexKeys(Index width, Index block, BlockIndexKey block_key, IndexType type)
    : width_(width),
      type_(type),
      block_key_(block_key),
      block_(block),
      means_(width, block, block) {}

void IndexKeys::append_up_to(Index n_keys, const Write& write) {
  if (n_keys <= n_keys_) return;
  rows_.resize(static_cast<std::size_t>(n_keys * width_));
  std::vector<double> vector(static_cast<std::size_t>(width_));
  for (; n_keys_ < n_keys; ++n_keys_) {
    write(n_keys_, vector);
    round_index_vector(vector, type_);
    std::transform(vector.begin(), vector.end(), rows_.begin() + n_keys_ * width_,
                   [](double x) { return static_cast<float>(x); });
  }
  if (block_key_ == BlockIndexKey::mean)
    means_.append_up_to({rows_.data(), Shape{n_keys_, width_}});
}

void IndexKeys::truncate(Index n_keys) {
  n_keys_ = std::min(n_keys_, n_keys);
  rows_.resize(static_cast<std::size_t>(n_keys_ * width_));
  if (block_key_ == BlockIndexKey::mean) means_.truncate(n_keys_);
}

TensorView<const float> IndexKeys::rows() const {
  if (block_key_ == BlockIndexKey::mean) return means_.means();
  if (block_key_ == BlockIndexKey::none) return {rows_.data(), Shape{n_keys_, width_}};
  return {
      rows_.data() + (block_ - 1) * width_, Shape{n_keys_ / block_, width_}, {block_ * width_, 1}};
}

namespace {

/// out[r] += row r of `map` . x, for the first out.size() rows.
void add_index_product(std::span<const double> map, std::span<const float> x,
                       std::span<double> out) {
  for (std::size_t r = 0; r < out.size(); ++r) {
    const double* row = map.data() + r * x.size();
    double sum = 0.0;
    for (std::size_t c = 0; c < x.size(); ++c) sum += row[c] * static_cast<double>(x[c]);
    out[r] += sum;
  }
}

}  // namespace

std::vector<TensorView<const float>> IndexVectors::keys_of(
    const SelectCall& call, Index n_key_heads, Index width, BlockIndexKey block_key,
    const std::function<IndexKeys::Write(Index head)>& write) const {
  std::vector<TensorView<const float>> rows(static_cast<std::size_t>(n_key_heads));
  ScoreEngine& engine = engine_of(call);
  engine.run(n_key_heads, [&](Index head, ScoreWorker&) {
    auto& keys = engine.kept<IndexKeys>(this, call.layer, head, [&] {
      return IndexKeys(width, block_, block_ > 1 ? block_key : BlockIndexKey::none, type_);
    });
    keys.append_up_to(call.k.dim(1), write(head));
    rows[static_cast<std::size_t>(head)] = keys.rows();
  });
  return rows;
}

IndexCall IndexVectors::learned(const SelectCall& call, const LearnedIndex& index,
                                Index width) const {
  const Index n_q = call.q.dim(0);
  const Index n_kv = call.k.dim(0);
  std::vector<std::span<const double>> of_queries, of_keys;
  for (Index kv_head = 0; kv_head < n_kv; ++kv_head) {
    of_queries.push_back(index.queries.of_channels("indexer", "index", call, kv_head, index.rank));
    of_keys.push_back(index.keys.of_channels("indexer", "index", call, kv_head, index.rank));
  }
  IndexCall out;
  out.heads_are_query_heads = true;
  out.keys_are_blocks = block_ > 1;
  out.q = Tensor<double>(Shape{n_q, call.n_tok, width});
  engine_of(call).run(n_q, [&](Index q_head, ScoreWorker&) {
    const std::span<const double> map = of_queries[static_cast<std::size_t>(q_head * n_kv / n_q)];
    for (Index row = 0; row < call.n_tok; ++row) {
      const std::span<double> vector(out.q.data() + (q_head * call.n_tok + row) * width,
                                     static_cast<std::size_t>(width));
      add_index_product(map, call.q.sub(q_head).row(row), vector);
      round_index_vector(vector, type_);
      for (double& x : vector) x *= static_cast<double>(call.score_scale);
    }
  });
  out.keys = keys_of(call, index.is_shared ? 1 : n_kv, width, BlockIndexKey::mean,
                     [&](Index head) -> IndexKeys::Write {
                       const TokenRange summed =
                           index.is_shared ? TokenRange{0, n_kv} : TokenRange{head, head + 1};
                       return [&of_keys, &call, summed](Index pos, std::span<double> vector) {
                         std::fill(vector.begin(), vector.end(), 0.0);
                         for (Index kv_head = summed.begin; kv_head < summed.end; ++kv_head)
                           add_index_product(of_keys[static_cast<std::size_t>(kv_head)],
                                             call.k.sub(kv_head).row(pos), vector);
                       };
                     });
  return out;
}

IndexCall IndexVectors::recorded(const SelectCall& call) const {
  const SideView& side = *call.side;
  const Index n_heads = side.index_q.dim(0);
  const Index width = side.index_q.dim(2);
  if (side.index_q.dim(1) != call.n_tok || side.index_k.dim(1) != call.k.dim(1)) {
    throw ShapeError(
        "indexer: layer {}: index vectors of {} queries and {} tokens, expected {} and {}",
        call.layer, side.index_q.dim(1), side.index_k.dim(1), call.n_tok, call.k.dim(1));
  }
  IndexCall out;
  out.keys_are_blocks = block_ > 1;
  out.gates = side.index_w;
  out.q = Tensor<double>(Shape{n_heads, call.n_tok, width});
  const double scale = 1.0 / std::sqrt(static_cast<double>(width));
  engine_of(call).run(n_heads, [&](Index head, ScoreWorker&) {
    for (Index row = 0; row < call.n_tok; ++row) {
      const auto from = side.index_q.sub(head).row(row);
      const std::span<double> vector(out.q.data() + (head * call.n_tok + row) * width, from.size());
      std::copy(from.begin(), from.end(), vector.begin());
      round_index_vector(vector, type_);
      for (double& x : vector) x *= scale;
    }
  });
  out.keys = keys_of(call, side.index_k.dim(0), width, BlockIndexKey::last,
                     [&side](Index head) -> IndexKeys::Write {
                       return [k = side.index_k.sub(head)](Index pos, std::span<double> vector) {
                         const auto from = k.row(pos);
                         std::copy(from.begin(), from.end(), vector.begin());
                       };
                     });
  return out;
}

}  // namespace kvscope

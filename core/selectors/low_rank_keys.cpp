// Compiled alone: Eigen's templates, which the neighbours do not need.
#include "core/selectors/low_rank_keys.hpp"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/selectors/candidates.hpp"

namespace kvscope {

Index LowRankKeys::rank_of(double share, Index n) {
  return std::clamp<Index>(static_cast<Index>(std::floor(share * static_cast<double>(n))), 1, n);
}

void LowRankKeys::before_rotation(const SelectCall& call, Index pos, std::span<double> out) const {
  const auto d = static_cast<std::size_t>(call.k.dim(2));
  std::fill(out.begin(), out.end(), 0.0);
  for (Index head = 0; head < call.k.dim(0); ++head) {
    if (!is_alive(call, head, pos)) continue;
    const auto part = out.subspan(static_cast<std::size_t>(head) * d, d);
    const auto key = call.k.sub(head).row(pos);
    std::copy(key.begin(), key.end(), part.begin());
    rotation_.turn_back(pos, part);
  }
}

void LowRankKeys::factor(const SelectCall& call) {
  if (!bases_.is_due(call.pos_begin)) return;
  constexpr Index kColumns = 256;
  const Index n = call.k.dim(0) * call.k.dim(2);
  Eigen::MatrixXd block(n, kColumns);
  Eigen::MatrixXd scatter = Eigen::MatrixXd::Zero(n, n);
  for (Index first = 0; first < call.pos_begin; first += kColumns) {
    const Index count = std::min(kColumns, call.pos_begin - first);
    for (Index i = 0; i < count; ++i)
      before_rotation(call, first + i, {block.col(i).data(), static_cast<std::size_t>(n)});
    scatter.selfadjointView<Eigen::Lower>().rankUpdate(block.leftCols(count));
  }
  // The right singular vectors of the keys, a row each, are the eigenvectors of their scatter.
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solved(scatter);
  const Index rank = rank_of(share_, n);
  Tensor<double> basis(Shape{rank, n});
  for (Index r = 0; r < rank; ++r) {
    for (Index c = 0; c < n; ++c) basis(r, c) = solved.eigenvectors()(c, n - 1 - r);
  }
  bases_.add(call.pos_begin, call.pos_begin + call.n_tok, std::move(basis));
}

Tensor<double> LowRankKeys::rebuilt(const SelectCall& call, Index kv_head,
                                    std::span<const KeyPos> keys) const {
  const Index d = call.k.dim(2);
  Tensor<double> out(Shape{static_cast<Index>(keys.size()), d});
  if (keys.empty()) return out;
  const Tensor<double>& basis = bases_.current();
  const auto n = static_cast<std::size_t>(basis.dim(1));
  std::vector<double> whole(n);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    before_rotation(call, keys[i], whole);
    const auto key = out.view().row(static_cast<Index>(i));
    std::fill(key.begin(), key.end(), 0.0);
    for (Index r = 0; r < basis.dim(0); ++r) {
      const double* axis = basis.data() + r * basis.dim(1);
      double code = 0.0;
      for (std::size_t c = 0; c < n; ++c) code += axis[c] * whole[c];
      for (Index c = 0; c < d; ++c)
        key[static_cast<std::size_t>(c)] += code * axis[kv_head * d + c];
    }
    rotation_.turn(keys[i], key);
  }
  return out;
}

}  // namespace kvscope

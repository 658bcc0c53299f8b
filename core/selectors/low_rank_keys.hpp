// Keys rebuilt from a factorisation of low rank of the keys before rotation, all KV heads of a
// layer together (ShadowKV, arXiv 2410.21465): what a method attends to that keeps no keys.
#pragma once

#include <span>

#include "core/selectors/fit_history.hpp"
#include "core/selectors/key_rotation.hpp"
#include "core/selectors/selector.hpp"

namespace kvscope {

class LowRankKeys {
 public:
  /// share: of the n_kv * d_head channels of a token's keys, at least one.
  LowRankKeys(KeyRotation rotation, double share) : rotation_(std::move(rotation)), share_(share) {}

  /// Channels that stand for n of them.
  static Index rank_of(double share, Index n);

  /// Factors the keys before the call where that is due: at first, and when they have doubled. Dead
  /// keys count as zeros.
  void factor(const SelectCall& call);
  /// Forgets what was factored in calls that reach beyond n_keys.
  void truncate(Index n_keys) { bases_.truncate(n_keys); }

  /// The keys at `keys` of one KV head as they come back from `rank` numbers each, rotated again:
  /// of all matrices of that rank the nearest to those that were factored. [keys.size(), d_head]
  Tensor<double> rebuilt(const SelectCall& call, Index kv_head, std::span<const KeyPos> keys) const;

 private:
  /// The keys of a position before rotation, head after head; dead ones 0. out [n_kv * d_head]
  void before_rotation(const SelectCall& call, Index pos, std::span<double> out) const;

  KeyRotation rotation_;
  double share_;
  FitHistory<Tensor<double>> bases_;  // [rank, n_kv * d_head], orthonormal rows
};

}  // namespace kvscope

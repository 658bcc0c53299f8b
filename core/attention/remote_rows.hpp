// Queries and keys of a call that lie elsewhere, on a device: what the operations of methods ask
// about them instead of looking at them.
#pragma once

#include <span>
#include <vector>

#include "core/attention/selection.hpp"
#include "core/base/error.hpp"

namespace kvscope {

/// What must be on the host of a call's queries, keys and values.
enum class HostRows { all, queries, none };

class RemoteRows {
 public:
  virtual ~RemoteRows() = default;
  /// Softmax weights of rows [first_row, end_row) of the call, over the keys of a list per KV head
  /// up to each row's own, summed over the rows and the heads of the KV head. [n_kv][keys]. lists:
  /// ascending positions that end with all of the call's own; none: every key of the context.
  virtual std::vector<std::vector<double>> softmax_votes(
      std::span<const std::span<const KeyPos>> lists, Index first_row, Index end_row) const = 0;
  /// out = scaled scores of rows [first_row, end_row) of the call in one query head; any numbers
  /// where a row does not see a key. [end_row - first_row, keys of the context]. May be asked from
  /// several threads at once; `out` may hold other numbers meanwhile.
  virtual void scores(Index q_head, Index first_row, Index end_row,
                      std::span<double> out) const = 0;
  /// Softmax weights of rows [first_row, end_row) of the call, the mean over the query heads; 0
  /// where a row does not see a key. [end_row - first_row, keys of the context]. Drafts ask for
  /// them and no selector does: throws ConfigError where a device's model does not say otherwise.
  virtual Tensor<float> mean_attention(Index first_row, Index end_row) const {
    (void)first_row, (void)end_row;
    throw ConfigError("these rows do not say what their attention is");
  }
  /// The cosine of each key of such a list with the list's mean, of unit keys or (takes_unit false)
  /// of keys as they are. Vectors are divided by at least the norm eps. [n_kv][keys]
  virtual std::vector<std::vector<double>> mean_cosines(
      std::span<const std::span<const KeyPos>> lists, bool takes_unit, double eps) const = 0;
  /// 1 / max(|k|, eps) of each key of such a list. [n_kv][keys]
  virtual std::vector<std::vector<double>> inverse_norms(
      std::span<const std::span<const KeyPos>> lists, double eps) const = 0;
  /// out[i][t] = vectors[i] . key(keys.begin + t) of KV head i / (out.size() / n_kv). vectors
  /// [out.size(), d_head]; keys: within the context.
  virtual void linear_scores(std::span<const double> vectors, TokenRange keys,
                             std::span<const std::span<double>> out) const = 0;
  /// out[i][t] = the largest product of key(keys.begin + t) of KV head i with its vectors. vectors
  /// [out.size(), n, d_head]
  virtual void largest_scores(std::span<const double> vectors, TokenRange keys,
                              std::span<const std::span<double>> out) const = 0;
  /// The sum of the values at these positions. [n_kv][d_head]
  virtual std::vector<std::vector<double>> value_sums(TokenRange keys) const = 0;
};

}  // namespace kvscope

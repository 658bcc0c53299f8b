// Numbers that a method learned for every layer and KV head, as many for each, and their place in a
// file of `kvscope fit`.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/parallel.hpp"
#include "core/selectors/artifact.hpp"
#include "core/selectors/learned.hpp"

namespace kvscope {

class LearnedHeads {
 public:
  /// Puts what `learn` makes of each (layer, KV head), on all threads.
  void learn(std::span<const Index> layers, Index n_kv, ThreadPool& pool,
             const std::function<std::vector<double>(Index layer, Index kv_head)>& learn);
  void put(Index layer, Index kv_head, std::vector<double> values);
  void clear() { heads_.clear(); }

  /// Empty span: nothing was learned there.
  std::span<const double> find(Index layer, Index kv_head) const;
  /// The same, of n numbers for keys of n / per_channel channels; throws ConfigError that begins
  /// with the method's name where nothing was learned, ShapeError for another number.
  std::span<const double> of(std::string_view method, const SelectCall& call, Index kv_head,
                             Index per_channel = 1) const;

  /// values: layers, and one list per layer under `name`. what: "the main direction of the
  /// queries".
  Learned learned(std::string_view name, std::string_view what) const;
  /// Takes what learned() wrote, n numbers for each KV head. Throws what check_shape and
  /// ArtifactFile throw.
  void load(const ArtifactFile& file, std::string_view name, const AttentionShape& shape, Index n);

 private:
  std::map<std::pair<Index, Index>, std::vector<double>> heads_;  // by (layer, KV head)
};

}  // namespace kvscope

// The arrays of a coverage result: declared once, written layer by layer.
#pragma once

#include <string>
#include <vector>

#include "analysis/kinds/coverage_replay.hpp"
#include "analysis/kinds/nucleus_sizes.hpp"
#include "analysis/kinds/pinsker_floor.hpp"

namespace kvscope {

/// What the axes are.
struct CoverageAxes {
  std::vector<Index> layers;
  std::vector<Index> q_heads;
  std::vector<Index> row_pos;
  std::vector<double> shares;
  std::vector<ReplayPair> pairs;
  Index n_tokens = 0;
  std::vector<Index> top_k;  // budgets whose oracle mass is kept: 1, 2, 4, ...
};

/// Between sink.begin and sink.finish, both the caller's.
class CoverageWriter {
 public:
  /// Declares everything and writes the axes. `sink` must outlive it.
  CoverageWriter(ResultWriter& output, const CoverageAxes& axes, const MapGrid& grid);

  /// Everything of the layer at `slot` of the axis. shared: the layer's shared budget; topk_mass
  /// [top_k.size()].
  void write_layer(Index slot, const LayerNucleus& nucleus, std::optional<Index> shared,
                   std::span<const double> topk_mass, const std::vector<float>& map_mass,
                   const std::vector<PairCoverage>& pairs);

  void write_pinsker(const PinskerResult& pinsker);
  void add_plots(bool has_pinsker);

 private:
  void declare(const std::string& name, ResultType type, Shape shape, std::vector<std::string> axes,
               const std::string& units, const std::string& long_name);
  ResultWriter& output_;
  bool has_pairs_;
};

}  // namespace kvscope

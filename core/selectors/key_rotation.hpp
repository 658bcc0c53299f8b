// How a model rotates its keys by their positions, read off a recording that has the keys before
// and after (side tensor k_pre_rope): what a method needs that works on keys before rotation.
#pragma once

#include <map>
#include <span>
#include <utility>
#include <vector>

#include "core/selectors/artifact.hpp"
#include "core/trace/source.hpp"

namespace kvscope {

/// The rotary embedding of one layer: pair i of channels turns by position * frequencies[i] and
/// grows by `amplitude`. Channels beyond 2 * frequencies.size() stay as they are.
struct KeyRotation {
  bool is_interleaved = false;  // pairs (0, 1), (2, 3), ...; else i and i + half of the width
  double amplitude = 1.0;
  std::vector<double> frequencies;  // radians per position; none: the layer does not rotate

  /// The channels of pair i.
  std::pair<std::size_t, std::size_t> pair(std::size_t i) const {
    return is_interleaved ? std::pair{2 * i, 2 * i + 1} : std::pair{i, i + frequencies.size()};
  }
  /// Turns a key [d_head] of a position in place, or back to what it was before.
  void turn(Index pos, std::span<double> key) const { apply(pos, key, /*back=*/false); }
  void turn_back(Index pos, std::span<double> key) const { apply(pos, key, /*back=*/true); }

 private:
  void apply(Index pos, std::span<double> key, bool back) const;
};

/// Fits the angles of a layer to its keys of all KV heads, before and after: each pair's angle per
/// position from the products of neighbours, then of positions 2, 4, 8, ... apart, which narrow it
/// down to about the rounding of the recording over its length. Throws ConfigError if the recording
/// has no keys before rotation, or if no rotation by positions leads from one to the other.
KeyRotation fit_rotation(const TraceSource& text, Index layer);

/// The rotations of a model's layers, as the file of kvscope fit.
Learned rotations_to_file(const std::map<Index, KeyRotation>& rotations);
/// Throws what ArtifactFile and check_shape throw.
std::map<Index, KeyRotation> load_rotations(const ArtifactFile& file, const AttentionShape& shape);

}  // namespace kvscope

// Layers of an analysis that were computed elsewhere: a writer that is also a LayerStore gives them
// back to LayerArrays, and the analysis goes on from there as if it had filled them itself.
#pragma once

#include <span>
#include <string>

#include "core/tensor/tensor.hpp"

namespace kvscope {

class LayerStore {
 public:
  virtual ~LayerStore() = default;
  /// True if the layer at `slot` is not to be computed here.
  virtual bool knows(Index slot) const = 0;
  /// Fills an array of a layer that is known; leaves it alone where nobody will look at it. Throws
  /// FormatError if what is there is another array.
  virtual void restore(const std::string& name, Index slot, std::span<std::byte> values) const = 0;
  /// Gets every array of a layer that was computed here.
  virtual void keep(const std::string& name, Index slot, std::span<const std::byte> values) = 0;
};

}  // namespace kvscope

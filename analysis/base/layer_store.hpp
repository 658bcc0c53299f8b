// Layers of an analysis that were computed elsewhere: a writer that is also a LayerStore gives them
// back to LayerArrays, and the analysis goes on from there as if it had filled them itself.
#pragma once

#include <span>
#include <string>

#include "core/tensor/tensor.hpp"
#include "core/trace/result.hpp"

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

/// Such a writer, which hands everything on to another. `to` must outlive it.
class LayersBeside : public ResultWriter, public LayerStore {
 public:
  explicit LayersBeside(ResultWriter& to) : to_(to) {}
  void begin(const ResultInfo& info) override { to_.begin(info); }
  void declare(const ResultArray& array) override { to_.declare(array); }
  void add_plot(const ResultPlot& plot) override { to_.add_plot(plot); }
  void finish(const nlohmann::ordered_json& summary) override { to_.finish(summary); }

 protected:
  void write_raw(std::string_view name, ResultType type, Index first, const void* data,
                 Index n_elements) override {
    with_type(type, [&](auto zero) {
      using T = decltype(zero);
      to_.write<T>(name, first,
                   std::span(static_cast<const T*>(data), static_cast<std::size_t>(n_elements)));
    });
  }

 private:
  ResultWriter& to_;
};

}  // namespace kvscope

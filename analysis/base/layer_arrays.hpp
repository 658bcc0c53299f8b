// The arrays that an analysis fills layer by layer, each named once: what is declared, allocated,
// cleared and written follows from that one line.
//
//   LayerArrays arrays(output, n_layers);
//   Tensor<float>& mass = arrays.add<float>("mass", {n_q, n}, {"q_head", "pos"}, "1", "kept mass");
//   for each layer:  arrays.clear();  if (!arrays.load(slot)) fill mass;  arrays.write(slot);
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "analysis/base/layer_store.hpp"
#include "core/trace/result_writer.hpp"

namespace kvscope {

/// An extent: how many heads, chunks, positions.
inline Index n_of(const auto& list) {
  return static_cast<Index>(list.size());
}

class LayerArrays {
 public:
  /// The writer must outlive this object and have begun.
  LayerArrays(ResultWriter& output, Index n_layers)
      : output_(output), store_(dynamic_cast<LayerStore*>(&output)), n_layers_(n_layers) {}

  /// Declares [n_layers, shape] with the axes "layer", `axes`. Returns the elements of one layer,
  /// which live as long as this object; clear() sets them to `fill`.
  template <class T>
  Tensor<T>& add(const std::string& name, const Shape& shape, std::vector<std::string> axes,
                 const std::string& units, const std::string& long_name, T fill = T{}) {
    Shape of_all{n_layers_};
    for (int axis = 0; axis < shape.rank; ++axis)
      of_all.dim[static_cast<std::size_t>(of_all.rank++)] = shape[axis];
    axes.insert(axes.begin(), "layer");
    output_.declare({name, result_type_of<T>(), of_all, std::move(axes), units, long_name});
    return own<T>(name, shape, fill, /*is_written=*/true);
  }

  /// What an analysis knows of a layer besides its arrays, and summarises: not written, but
  /// stored with them.
  template <class T>
  Tensor<T>& add_unwritten(const std::string& name, const Shape& shape, T fill = T{}) {
    return own<T>(name, shape, fill, /*is_written=*/false);
  }

  void clear() {
    for (const auto& array : arrays_) array->clear();
  }
  /// True if the layer at `slot` was computed elsewhere: everything is filled then.
  bool load(Index slot) {
    if (store_ == nullptr || !store_->knows(slot)) return false;
    for (const auto& array : arrays_) store_->restore(array->name, slot, array->bytes());
    return true;
  }
  /// As the layer at `slot`.
  void write(Index slot) {
    for (const auto& array : arrays_) {
      if (array->is_written) array->write(output_, slot);
    }
    if (store_ == nullptr || store_->knows(slot)) return;
    for (const auto& array : arrays_) store_->keep(array->name, slot, array->bytes());
  }

 private:
  struct AnyArray {
    AnyArray(std::string array_name, bool written)
        : name(std::move(array_name)), is_written(written) {}
    virtual ~AnyArray() = default;
    virtual std::span<std::byte> bytes() = 0;
    virtual void clear() = 0;
    virtual void write(ResultWriter& output, Index slot) const = 0;
    std::string name;
    bool is_written;
  };
  template <class T>
  struct Array final : AnyArray {
    Array(std::string array_name, const Shape& shape, T fill_value, bool written)
        : AnyArray(std::move(array_name), written),
          fill(fill_value),
          values(Tensor<T>::uninitialized(shape)) {
      clear();
    }
    std::span<std::byte> bytes() override { return std::as_writable_bytes(values.flat()); }
    void clear() override { std::ranges::fill(values.flat(), fill); }
    void write(ResultWriter& output, Index slot) const override {
      output.write<T>(name, slot, values.flat());
    }
    T fill;
    Tensor<T> values;
  };

  template <class T>
  Tensor<T>& own(const std::string& name, const Shape& shape, T fill, bool is_written) {
    auto array = std::make_unique<Array<T>>(name, shape, fill, is_written);
    Tensor<T>& values = array->values;
    arrays_.push_back(std::move(array));
    return values;
  }

  ResultWriter& output_;
  LayerStore* store_;  // null: everything is computed here
  Index n_layers_;
  std::vector<std::unique_ptr<AnyArray>> arrays_;
};

}  // namespace kvscope

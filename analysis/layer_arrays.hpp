// The arrays that an analysis fills layer by layer, each named once: what is declared, allocated,
// cleared and written follows from that one line.
//
//   LayerArrays arrays(sink, n_layers);
//   Tensor<float>& mass = arrays.add<float>("mass", {n_q, n}, {"q_head", "pos"}, "1", "kept mass");
//   for each layer:  arrays.clear();  fill mass;  arrays.write(slot);
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/trace/result.hpp"

namespace kvscope {

/// An extent: how many heads, chunks, positions.
inline Index n_of(const auto& list) {
  return static_cast<Index>(list.size());
}

class LayerArrays {
 public:
  /// The sink must outlive this object and have begun.
  LayerArrays(ResultSink& sink, Index n_layers) : sink_(sink), n_layers_(n_layers) {}

  /// Declares [n_layers, shape] with the axes "layer", `axes`. Returns the elements of one layer,
  /// which live as long as this object; clear() sets them to `fill`.
  template <class T>
  Tensor<T>& add(const std::string& name, const Shape& shape, std::vector<std::string> axes,
                 const std::string& units, const std::string& long_name, T fill = T{}) {
    Shape of_all{n_layers_};
    for (int axis = 0; axis < shape.rank; ++axis) {
      of_all.dim[static_cast<std::size_t>(of_all.rank++)] = shape[axis];
    }
    axes.insert(axes.begin(), "layer");
    sink_.declare({name, result_type_of<T>(), of_all, std::move(axes), units, long_name});
    auto array = std::make_unique<Array<T>>(name, shape, fill);
    Tensor<T>& values = array->values;
    arrays_.push_back(std::move(array));
    return values;
  }

  void clear() {
    for (const auto& array : arrays_) array->clear();
  }
  /// As the layer at `slot`.
  void write(Index slot) {
    for (const auto& array : arrays_) array->write(sink_, slot);
  }

 private:
  struct AnyArray {
    virtual ~AnyArray() = default;
    virtual void clear() = 0;
    virtual void write(ResultSink& sink, Index slot) const = 0;
  };
  template <class T>
  struct Array final : AnyArray {
    Array(std::string array_name, const Shape& shape, T fill_value)
        : name(std::move(array_name)), fill(fill_value), values(Tensor<T>::uninitialized(shape)) {
      clear();
    }
    void clear() override { std::fill(values.flat().begin(), values.flat().end(), fill); }
    void write(ResultSink& sink, Index slot) const override {
      sink.write<T>(name, slot, values.flat());
    }
    std::string name;
    T fill;
    Tensor<T> values;
  };

  ResultSink& sink_;
  Index n_layers_;
  std::vector<std::unique_ptr<AnyArray>> arrays_;
};

}  // namespace kvscope

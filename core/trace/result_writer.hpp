// Where analyses put their results: named arrays with axes and units, grouped so that one group is
// one plot.
#pragma once

#include <concepts>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tensor/tensor.hpp"

namespace kvscope {

struct ResultInfo;  // core/trace/result.hpp

/// Element types of result arrays.
enum class ResultType { f32, f64, i32, i64, u8 };

template <class T>
constexpr ResultType result_type_of() {
  if constexpr (std::same_as<T, float>) {
    return ResultType::f32;
  } else if constexpr (std::same_as<T, double>) {
    return ResultType::f64;
  } else if constexpr (std::same_as<T, std::int32_t>) {
    return ResultType::i32;
  } else if constexpr (std::same_as<T, std::int64_t>) {
    return ResultType::i64;
  } else {
    static_assert(std::same_as<T, std::uint8_t>);
    return ResultType::u8;
  }
}

/// Calls visit(T{}) with the C++ type of the elements, for code that converts them.
template <class Visit>
auto with_type(ResultType type, Visit&& visit) {
  switch (type) {
    case ResultType::f32:
      return visit(float{});
    case ResultType::f64:
      return visit(double{});
    case ResultType::i32:
      return visit(std::int32_t{});
    case ResultType::i64:
      return visit(std::int64_t{});
    case ResultType::u8:
      break;
  }
  return visit(std::uint8_t{});
}

/// What an array is. `name` is its path inside the result file: "s_q", "bounds/printed".
struct ResultArray {
  std::string name;
  ResultType type = ResultType::f32;
  Shape shape;
  std::vector<std::string> axes;  // one name per axis: "layer", "q_head", "pos", ...
  std::string units;              // "nat", "token", "1" for pure numbers
  std::string long_name;          // axis label of a plot
};

/// One plot for h5web or silx: NXdata with a signal and, per axis, an optional coordinate array.
/// Names are array names.
struct ResultPlot {
  std::string name;  // group name
  std::string signal;
  std::vector<std::string> axes;  // array names, "." for none; size = rank of the signal
  std::string title;
};

/// Bytes of one element.
inline std::size_t size_of(ResultType type) {
  return with_type(type, [](auto element) { return sizeof element; });
}

/// Where an analysis puts its arrays: declared whole, written in slabs along the first
/// axis, so that nothing needs to be in memory at once. Protocol: begin, [declare,
/// write...]*, plots, finish.
class ResultWriter {
 public:
  virtual ~ResultWriter() = default;
  virtual void begin(const ResultInfo& info) = 0;
  virtual void declare(const ResultArray& array) = 0;
  /// Writes rows [first, first + n) of the first axis; `data` holds n * (product of
  /// the other axes).
  template <class T>
  void write(std::string_view name, Index first, std::span<const T> data) {
    write_raw(name, result_type_of<T>(), first, data.data(), static_cast<Index>(data.size()));
  }
  /// Declares an array and writes all of it.
  template <class T>
  void put(const std::string& name, const Shape& shape, std::vector<std::string> axes,
           std::string_view units, std::string_view long_name, std::span<const T> data) {
    declare({name, result_type_of<T>(), shape, std::move(axes), std::string(units),
             std::string(long_name)});
    write<T>(name, 0, data);
  }
  virtual void add_plot(const ResultPlot& plot) = 0;
  /// `summary`: the few numbers a person reads first; stored with the result and printed
  /// by the program.
  virtual void finish(const nlohmann::ordered_json& summary) = 0;

 protected:
  virtual void write_raw(std::string_view name, ResultType type, Index first, const void* data,
                         Index n_elements) = 0;
};

}  // namespace kvscope

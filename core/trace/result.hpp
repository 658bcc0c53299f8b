// Results of analyses as plain records: named arrays with axes and units, grouped so that one group
// is one plot.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor/tensor.hpp"

namespace kvscope {

/// Element types of result arrays.
enum class ResultType { f32, f64, i32, i64, u8 };

template <class T>
constexpr ResultType result_type_of();
template <>
constexpr ResultType result_type_of<float>() {
  return ResultType::f32;
}
template <>
constexpr ResultType result_type_of<double>() {
  return ResultType::f64;
}
template <>
constexpr ResultType result_type_of<std::int32_t>() {
  return ResultType::i32;
}
template <>
constexpr ResultType result_type_of<std::int64_t>() {
  return ResultType::i64;
}
template <>
constexpr ResultType result_type_of<std::uint8_t>() {
  return ResultType::u8;
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

/// Provenance of a result.
struct ResultInfo {
  std::string kind;  // "quoka", "theorem-b1", "quest", "layer-map"
  std::vector<std::string> trace_uuids;
  std::vector<std::string> trace_hashes;
  std::vector<std::string> trace_files;
  nlohmann::ordered_json config;  // every option that decided the numbers
  std::string config_hash;        // filled by the sink
  std::string command_line;
  std::string writer;
  std::string created;
};

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
  virtual void add_plot(const ResultPlot& plot) = 0;
  /// `summary`: the few numbers a person reads first; stored with the result and printed
  /// by the program.
  virtual void finish(const nlohmann::ordered_json& summary) = 0;

 protected:
  virtual void write_raw(std::string_view name, ResultType type, Index first, const void* data,
                         Index n_elements) = 0;
};

/// Keeps everything in memory: for tests, and for callers that want the arrays themselves.
class MemoryResult final : public ResultWriter {
 public:
  void begin(const ResultInfo& info) override;
  void declare(const ResultArray& array) override;
  void add_plot(const ResultPlot& plot) override;
  void finish(const nlohmann::ordered_json& summary) override;

  const ResultInfo& info() const { return info_; }
  const nlohmann::ordered_json& summary() const { return summary_; }
  const std::vector<ResultArray>& arrays() const { return arrays_; }
  const std::vector<ResultPlot>& plots() const { return plots_; }
  /// Elements of an array; throws ConfigError if there is none of that name and type.
  template <class T>
  std::span<const T> values(std::string_view name) const {
    const auto& bytes = bytes_of(name, result_type_of<T>());
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }

 protected:
  void write_raw(std::string_view name, ResultType type, Index first, const void* data,
                 Index n_elements) override;

 private:
  const std::vector<std::byte>& bytes_of(std::string_view name, ResultType type) const;
  ResultInfo info_;
  nlohmann::ordered_json summary_;
  std::vector<ResultArray> arrays_;
  std::vector<std::vector<std::byte>> data_;
  std::vector<ResultPlot> plots_;
};

/// Bytes of one element.
std::size_t size_of(ResultType type);

}  // namespace kvscope

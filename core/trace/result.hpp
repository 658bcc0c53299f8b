// Results of analyses as plain records, in memory, and what made them.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/trace/result_writer.hpp"

namespace kvscope {

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

/// What a result was made from, one object for each input: "what" it is ("trace", "draft trace",
/// "calibration trace", "model", "draft model", "text", "examples", "artifact", "hardware", whose
/// numbers stand in the configuration), and where they are known
/// "name" as it was given, "uuid" and "hash" of its contents. It follows from the rest of `info`,
/// so that it is the same for every way to compute a result: no path that was only looked at, no
/// time of a file.
nlohmann::ordered_json inputs_of(const ResultInfo& info);

/// A result as figures read it, wherever it lies: arrays by name as doubles, and what made them.
class ResultView {
 public:
  virtual ~ResultView() = default;
  /// What messages call it: a file, usually.
  virtual std::string name() const = 0;
  virtual const ResultInfo& info() const = 0;
  virtual const nlohmann::ordered_json& summary() const = 0;
  virtual const std::vector<ResultArray>& arrays() const = 0;
  /// All elements, row-major, as doubles. Throws ConfigError if there is no such array.
  virtual std::vector<double> read(std::string_view array) const = 0;

  /// Null if there is none.
  const ResultArray* find(std::string_view array) const;
  /// Throws ConfigError, naming the result, its kind and the array.
  const ResultArray& require(std::string_view array) const;
  /// The coordinates of an axis if the result has an array of its name, else 0, 1, 2, ...
  std::vector<double> axis(std::string_view array, int axis) const;
};

/// Keeps everything in memory: for tests, and for callers that want the arrays themselves. The view
/// comes first: Python frees a result at the address of its view.
class MemoryResult final : public ResultView, public ResultWriter {
 public:
  MemoryResult() = default;
  /// `name`: what messages call it.
  explicit MemoryResult(std::string name) : name_(std::move(name)) {}
  void begin(const ResultInfo& info) override;
  void declare(const ResultArray& array) override;
  void add_plot(const ResultPlot& plot) override;
  void finish(const nlohmann::ordered_json& summary) override;

  std::string name() const override { return name_; }
  const ResultInfo& info() const override { return info_; }
  const nlohmann::ordered_json& summary() const override { return summary_; }
  const std::vector<ResultArray>& arrays() const override { return arrays_; }
  std::vector<double> read(std::string_view array) const override;
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
  std::string name_ = "result";
  ResultInfo info_;
  nlohmann::ordered_json summary_;
  std::vector<ResultArray> arrays_;
  std::vector<std::vector<std::byte>> data_;
  std::vector<ResultPlot> plots_;
};

}  // namespace kvscope

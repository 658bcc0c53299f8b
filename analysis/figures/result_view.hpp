// A result as figures read it, wherever it lies: arrays by name, all as doubles, and what made
// them.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/base/table.hpp"
#include "core/trace/result_writer.hpp"

namespace kvscope {

class MemoryResult;

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
  /// Throws ConfigError, naming what is there and the analysis that writes it.
  const ResultArray& require(std::string_view array) const;
  /// The coordinates of an axis if the result has an array of its name, else 0, 1, 2, ...
  std::vector<double> axis(std::string_view array, int axis) const;
};

/// A result that was kept in memory; must outlive the view.
class MemoryResultView final : public ResultView {
 public:
  MemoryResultView(const MemoryResult& result, std::string name)
      : result_(result), name_(std::move(name)) {}
  std::string name() const override { return name_; }
  const ResultInfo& info() const override;
  const nlohmann::ordered_json& summary() const override;
  const std::vector<ResultArray>& arrays() const override;
  std::vector<double> read(std::string_view array) const override;

 private:
  const MemoryResult& result_;
  std::string name_;
};

/// The columns "rows/NAME" of a result as a table, where those that summary.categories names are
/// words; else the summary's list "layers". Throws FormatError if the result has neither.
Table rows_of(const ResultView& result);

/// A table as a result of `kind` with arrays rows/NAME: the other way round. `more` may
/// write further arrays.
void table_to_result(const Table& table, const ResultInfo& info, ResultWriter& output,
                     const std::function<void(ResultWriter&)>& more = {});

}  // namespace kvscope

// Results of analyses as HDF5 files: plain arrays, plus NXdata groups that h5web and silx plot
// unaided.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/trace/result.hpp"

namespace kvscope {

/// A writer of `out`; the file gets its name when finish() has succeeded, and nothing stays if the
/// writer is destroyed before. Throws IoError if `out` exists (unless overwrite) or cannot be
/// made. The writer throws ConfigError for arrays that are not declared, declared twice or not
/// written to their end, and ShapeError for slabs outside an array.
std::unique_ptr<ResultWriter> create_result_file(const std::filesystem::path& out, bool overwrite);

/// An open result file.
class ResultFile final : public ResultView {
 public:
  /// Throws IoError or FormatError (damaged, not a kvscope result, a newer version).
  static ResultFile open(const std::filesystem::path& path);
  ResultFile(ResultFile&&) noexcept;
  ResultFile& operator=(ResultFile&&) noexcept;
  ~ResultFile() override;

  std::string name() const override;
  const ResultInfo& info() const override;
  /// In alphabetical order of their names.
  const std::vector<ResultArray>& arrays() const override;
  const std::vector<ResultPlot>& plots() const;
  const nlohmann::ordered_json& summary() const override;
  std::vector<double> read(std::string_view array) const override;
  /// All elements of an array in row-major order. Throws ConfigError if there is none of that name
  /// and type.
  template <class T>
  std::vector<T> read(std::string_view name) const {
    std::vector<T> values(count_of(name, result_type_of<T>()));
    read_raw(name, values.data());
    return values;
  }

 private:
  struct Impl;
  explicit ResultFile(std::unique_ptr<Impl> impl);
  std::size_t count_of(std::string_view name, ResultType type) const;
  void read_raw(std::string_view name, void* out) const;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvscope

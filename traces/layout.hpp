// Lays out a whole trace file before its first tensor is written, and opens one with every shape
// checked.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/trace/info.hpp"
#include "traces/h5.hpp"
#include "traces/schema.hpp"

namespace kvscope {

/// Datasets of one file, of which each is opened when it is first asked for: a large trace has
/// hundreds. Safe from several threads.
class DatasetList {
 public:
  void add(h5::Dataset dataset) {
    all_.push_back({{}, dataset.type(), dataset.dims(), std::move(dataset)});
  }
  /// A dataset that has to have this type and shape.
  void expect(std::string path, h5::Type type, h5::Dims dims) {
    all_.push_back({std::move(path), type, std::move(dims), std::nullopt});
  }
  bool empty() const { return all_.empty(); }
  std::size_t size() const { return all_.size(); }
  /// Throws FormatError if it is not as expected.
  h5::Dataset& at(const h5::File& file, std::size_t i) const;
  /// A handle of its own, for who needs it once; throws as `at`.
  h5::Dataset open(const h5::File& file, std::size_t i) const;
  /// Opens and closes each that is not open; throws as `at`.
  void check_all(const h5::File& file) const;
  void clear() { all_.clear(); }

 private:
  struct Item {
    std::string path;
    h5::Type type;
    h5::Dims dims;
    std::optional<h5::Dataset> opened;
  };
  mutable std::vector<Item> all_;
  std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();
};

/// A trace file. arrays, their data and their checksums run in parallel.
struct TraceLayout {
  h5::File file;
  TraceInfo info;  // as the header says: of a file that is being recorded, the planned run
  std::vector<std::string> warnings;
  std::vector<schema::ArraySpec> arrays;
  DatasetList data_list;
  DatasetList checksum_list;               // empty if the file has none
  std::optional<h5::Dataset> token_bytes;  // text of the tokens, if recorded
  std::optional<h5::Dataset> token_offsets;
  std::optional<h5::Dataset> text_checksums;
  std::optional<h5::Dataset> progress;
  std::optional<h5::Dataset> moved_scores;

  bool has_checksums() const { return !checksum_list.empty(); }
  h5::Dataset& data(std::size_t array) { return data_list.at(file, array); }
  const h5::Dataset& data(std::size_t array) const { return data_list.at(file, array); }
  /// The table of an array: [n_calls, heads], [n_calls] without a head axis.
  h5::Dataset& checksums(std::size_t array) { return checksum_list.at(file, array); }
  const h5::Dataset& checksums(std::size_t array) const { return checksum_list.at(file, array); }

  /// Position in `arrays` of the array at this path; empty if the trace has none.
  std::optional<std::size_t> find(const std::string& path) const;
  /// Calls that are whole in the file: all of them, or while recording those committed so far.
  Index n_committed() const;
};

/// Makes the file with all of its datasets. Contiguous arrays get their place at once and are not
/// filled (the file is sparse); with a gzip level, arrays are chunked, shuffled, compressed and
/// carry Fletcher checksums.
TraceLayout create_layout(const std::filesystem::path& path, const TraceInfo& info,
                          std::optional<int> gzip_level = std::nullopt);

/// Which arrays are held against the header when a file is opened: all, or each when it is first
/// used, for a file of which a first look has seen all.
enum class CheckArrays { all, when_used };

/// Opens a file for reading and checks every array's type and shape against the header. Throws
/// IoError or FormatError.
TraceLayout open_layout(h5::File file, CheckArrays check = CheckArrays::all);
/// The same for a file of unknown origin: with a first look in a process of its own.
TraceLayout open_layout(const std::filesystem::path& path);

}  // namespace kvscope

// Lays out a whole trace file before its first tensor is written, and opens one with every shape
// checked.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/trace/info.hpp"
#include "traces/h5.hpp"
#include "traces/schema.hpp"

namespace kvscope {

/// A trace file with a handle on each of its arrays. arrays, data and checksums run in parallel.
struct TraceLayout {
  h5::File file;
  TraceInfo info;  // as the header says: of a file that is being recorded, the planned run
  std::vector<std::string> warnings;
  std::vector<schema::ArraySpec> arrays;
  std::vector<h5::Dataset> data;
  std::vector<h5::Dataset> checksums;      // empty if the file has none
  std::optional<h5::Dataset> token_bytes;  // text of the tokens, if recorded
  std::optional<h5::Dataset> token_offsets;
  std::optional<h5::Dataset> text_checksums;
  std::optional<h5::Dataset> progress;

  /// Position in `arrays` of the array at this path; empty if the trace has none.
  std::optional<std::size_t> find(const std::string& path) const;
  /// Units that are whole in the file: all of them, or while recording those committed so far.
  Index n_committed() const;
};

/// Makes the file with all of its datasets. Contiguous arrays get their place at once and are not
/// filled (the file is sparse); with a gzip level, arrays are chunked, shuffled, compressed and
/// carry Fletcher checksums.
TraceLayout create_layout(const std::filesystem::path& path, const TraceInfo& info,
                          std::optional<int> gzip_level = std::nullopt);

/// Opens a file for reading and checks every array's type and shape against the header. Throws
/// IoError or FormatError.
TraceLayout open_layout(h5::File file);
/// The same for a file of unknown origin: with a first look in a process of its own.
TraceLayout open_layout(const std::filesystem::path& path);

}  // namespace kvscope

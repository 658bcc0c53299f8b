// Copies the whole calls of one trace file into a new one with the true shapes: for interrupted and
// killed recordings, and to compress.
#pragma once

#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>

#include "core/base/new_file.hpp"
#include "core/base/progress.hpp"
#include "core/trace/info.hpp"

namespace kvscope {

struct CopyOptions {
  TraceStatus status = TraceStatus::complete;
  std::optional<int> gzip_level;
  bool overwrite = false;
  std::optional<Index> max_calls;  // copy no more calls than this
  std::stop_token stop;            // looked at before every piece (one head of one call)
};

struct CopyReport {
  Index n_calls = 0;
  Index n_tokens = 0;
  std::string content_hash;
};

/// A copy that is whole and checked; its name is one step away (NewFile::publish).
struct UnnamedCopy {
  CopyReport report;
  NewFile file;
};

/// Every piece is compared with its checksum on the way. `out` appears under its name when it is
/// whole. Throws FormatError if a piece is damaged or no call is whole, IoError if `out` exists
/// (unless overwrite) or cannot be written, Interrupted if stopped before the copy was whole.
CopyReport copy_trace(const std::filesystem::path& from, const std::filesystem::path& out,
                      const CopyOptions& options, const ProgressFn& progress);
/// The same but for the last step.
UnnamedCopy copy_unnamed(const std::filesystem::path& from, const std::filesystem::path& out,
                         const CopyOptions& options, const ProgressFn& progress);

}  // namespace kvscope

// Writes a trace file: OUT.part while it grows, OUT once it is whole. A kill at any moment loses no
// committed unit.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <stop_token>

#include "core/trace/receiver.hpp"

namespace kvscope {

/// How a trace file is made.
struct WriterOptions {
  bool overwrite = false;  // replace OUT, and a stale OUT.part
  /// 1 to 9: rewrite the finished trace compressed; default: not, which is fastest.
  std::optional<int> gzip_level;
  // Ends the rewriting before its next piece, which takes as long as the compression: the trace is
  // then whole and not compressed. An interrupted recording is not compressed at all.
  std::stop_token stop;
};

/// A receiver that writes `out`. Nothing is touched before begin(), and an existing file at `out`
/// stays until the new one is whole. Throws IoError if `out` or its .part exists (unless
/// overwrite), ConfigError for a gzip level out of range.
std::unique_ptr<TraceReceiver> create_trace(const std::filesystem::path& out,
                                            const WriterOptions& options);

/// Size of the file that a recording of this plan becomes (uncompressed), in bytes, within some
/// KiB.
std::int64_t estimated_file_bytes(const TraceInfo& info);

}  // namespace kvscope

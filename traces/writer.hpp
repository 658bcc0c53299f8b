// Writes a trace file: OUT.part while it grows, OUT once it is whole. A kill at any moment loses no
// committed call.
#pragma once

#include <algorithm>
#include <cstddef>
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
  /// Of the OUT.part of a killed run of the same recording, which KeptRecording has looked at: how
  /// many calls stay. It goes on after these, or takes the place of an OUT.part without any.
  std::optional<Index> kept_calls;
  /// 1 to 9: rewrites the finished trace compressed: keys 1.4 to 1 at best, slower than the model.
  std::optional<int> gzip_level;
  // Ends the rewriting before its next piece: the trace is then whole and not compressed.
  std::stop_token stop;
  /// More than 0: a thread writes while the caller goes on (queued_writer.hpp). Rows that come with
  /// their memory wait as they are, others are copied, up to so many bytes; what a call throws is
  /// thrown by a later one, at the latest by finish().
  std::size_t queue_bytes = 0;
  int n_threads = 1;  // that convert rows, sum them up and write them

  /// For a model on other hardware, which leaves the processor to whoever writes.
  void write_beside(int n_free_threads) {
    queue_bytes = std::size_t{256} << 20;
    n_threads = std::min(n_free_threads, 8);
  }
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

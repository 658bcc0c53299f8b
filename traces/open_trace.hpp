// The file of a trace, open for reading. Arrays are named by their paths, heads by their slots;
// every piece that is read is compared with its checksum.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "traces/layout.hpp"
#include "traces/piece_guard.hpp"
#include "traces/pieces.hpp"
#include "traces/reader.hpp"

namespace kvscope {

struct OpenTrace {
  TraceLayout layout;
  TraceInfo info;  // cut to what was committed
  std::string where;
  std::int64_t file_bytes = 0;
  std::vector<TokenId> tokens;  // of all calls of this file
  std::map<std::string, std::size_t> by_path;
  mutable std::atomic<int> is_chunked_known{-1};  // -1: nobody has asked yet
  // None where there are no checksums, or somebody else compares them.
  std::unique_ptr<PieceGuard> guard;

  /// With a first look in a process of its own. Throws what TraceFile::open throws.
  static std::unique_ptr<OpenTrace> open(const std::filesystem::path& path, OpenOptions options);
  static std::unique_ptr<OpenTrace> open_image(std::span<const std::byte> bytes,
                                               const std::string& name, OpenOptions options);

  const schema::ArraySpec& spec(std::size_t array) const { return layout.arrays[array]; }
  /// The array `path`, or a ConfigError that says what to record.
  std::size_t array_at(const std::string& path, const char* capture) const;
  std::size_t layer_array(Index layer, const char* name, const char* capture) const;
  /// Positions on the growing axis for token positions `range`. Throws ConfigError if they are not
  /// recorded.
  TokenRange locate(std::size_t array, TokenRange range) const;
  /// Positions [range) of one head, as they are stored, into `out`.
  void read_stored(std::size_t array, Index head, TokenRange range, void* out) const;
  /// The same widened: [n, row] or, for arrays of one number per position, [n].
  Tensor<float> read_rows(std::size_t array, Index head, TokenRange positions) const;

  /// Of all of `tokens`.
  std::vector<std::string> token_bytes() const;
  bool is_chunked() const;

 private:
  void read_blocks(std::size_t array, Index head, TokenRange range, const BlockFn& visit) const;
  void read_floats(std::size_t array, Index head, TokenRange range, float* out) const;
};

}  // namespace kvscope

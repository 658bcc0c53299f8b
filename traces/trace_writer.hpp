// The writer of trace files behind create_trace(): a receiver, and for a recorder that learns the
// length of its run as it goes, rows by the path of their array and another plan.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "core/base/new_file.hpp"
#include "core/base/parallel.hpp"
#include "traces/hash.hpp"
#include "traces/layout.hpp"
#include "traces/queued_writer.hpp"
#include "traces/raw_file.hpp"
#include "traces/writer.hpp"

namespace kvscope {

/// One array while it is being filled.
struct GrowingArray {
  schema::ArraySpec spec;
  std::uint64_t data_offset = 0;  // in the file
  std::uint64_t checksum_offset = 0;
  Index n_filled = 0;                // positions of the running call
  std::vector<Checksum> running;     // per head, of the running call
  std::vector<std::uint64_t> table;  // [n_calls, heads], as far as committed
};

/// Where in a file the bytes of everything else lie.
struct TracePlaces {
  std::uint64_t text = 0;
  std::uint64_t text_index = 0;
  std::uint64_t text_checksum = 0;
  std::uint64_t progress = 0;
  std::uint64_t moved_scores = 0;
};

/// Empty arrays of a file that was laid out, and where everything lies.
std::pair<std::vector<GrowingArray>, TracePlaces> places_of(TraceLayout& layout);

/// Rows of one head on their way to the file.
struct Piece {
  GrowingArray* array = nullptr;
  Index head = 0;
  TypedRows rows;  // [n, row]
};

/// The file is laid out by HDF5 once, closed, and from then on only raw bytes are written at known
/// offsets. So its metadata are whole at every moment, whatever happens to this process. A call
/// counts once /progress says so.
class TraceWriter final : public CountingReceiver {
 public:
  TraceWriter(std::filesystem::path out, const WriterOptions& options)
      : out_(std::move(out)), part_(part_path(out_)), options_(options) {}
  ~TraceWriter() override {
    // Nothing in it is worth recovering.
    if (file_.is_open() && n_committed_ == 0) remove_quietly(part_);
  }

  void begin(const TraceInfo& info) override;
  void announce_prompt(std::span<const TokenId> ids) override;
  void write(const CallRows& rows) override;
  void write_tokens(std::span<const TokenId> ids, std::span<const std::string> bytes) override;
  void write_moved_scores(std::span<const float> by_layer) override;
  void commit_call() override;
  void finish(TraceStatus status) override;
  std::size_t n_committed() const override { return n_committed_; }
  std::int64_t bytes_written() const override { return bytes_written_; }
  std::string content_hash() const override { return info_.content_hash; }
  std::string recovery_hint() const override;

  /// The plan; after finish() what the file says of itself.
  const TraceInfo& info() const { return info_; }
  /// Rows [heads, n, row] of the running call behind those that the array at `path` has, without
  /// the axes that it lacks. Throws ConfigError if this recording has no such array, ShapeError for
  /// another shape, FormatError for NaN and Inf.
  void append(const std::string& path, const AnyRows& rows);
  /// Moves the committed calls into a file for another plan, which begins with the same ones.
  void replan(const TraceInfo& info);
  /// Makes a trace of the committed calls, as `info` describes them.
  void finish(TraceStatus status, const TraceInfo& info);

 private:
  void make_room() const;
  void go_on(Index n_calls);
  void open_file();
  const ForwardCall& call() const;
  GrowingArray& array_at(Index layer, const char* name);
  GrowingArray& array_at(const std::string& path);
  void require_open(const char* what) const;
  void add_rows(GrowingArray& array, const AnyRows& any, std::vector<Piece>& pieces);
  void write_pieces(const std::vector<Piece>& pieces);
  void append_integers(GrowingArray& array, TensorView<const std::int32_t> rows);
  void append_head(GrowingArray& array, Index head, Index n, std::span<const std::byte> bytes,
                   Index filled_row);
  void check_rows(const GrowingArray& array, Index n_heads, Index n, Index row) const;
  void put(std::uint64_t offset, const void* data, std::size_t n_bytes);
  void complete(TraceStatus status);
  void seal(TraceStatus status, h5::File file);
  void make_copy(TraceStatus status, std::optional<int> gzip_level, std::stop_token stop);
  bool make_compressed(TraceStatus status);

  std::filesystem::path out_;
  std::filesystem::path part_;
  WriterOptions options_;
  TraceInfo info_;
  RawFile file_;
  std::vector<GrowingArray> arrays_;
  TracePlaces at_;
  std::vector<std::uint64_t> text_table_;
  std::vector<TokenId> tokens_;
  std::int64_t n_text_bytes_ = 0;
  bool has_tokens_ = false;  // the running call has its tokens
  std::size_t n_committed_ = 0;
  std::atomic<std::int64_t> bytes_written_ = 0;
  std::unique_ptr<ThreadPool> pool_;
  std::vector<std::vector<std::byte>> scratch_;  // of each thread
  std::optional<NewFile> copy_;                  // what gets the name instead of the .part
};

}  // namespace kvscope

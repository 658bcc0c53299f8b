// An open trace: its file, its tokens as text, what is odd about it, and slices that stay in the
// cache.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/trace/source.hpp"
#include "gui/model/cache.hpp"
#include "traces/reader.hpp"

namespace kvscope::gui {

/// Tells one state of a file from another: when it was written, and how long it is.
struct FileStamp {
  std::filesystem::file_time_type written;
  std::uintmax_t size = 0;
  bool operator==(const FileStamp&) const = default;
};

/// Empty if there is no such file.
std::optional<FileStamp> file_stamp(const std::filesystem::path& path);

/// Immutable once open; shared with the jobs that read it. Safe from several threads.
class Document {
 public:
  /// Reads metadata and token texts only. Throws what TraceFile::open throws. The cache must
  /// outlive the document.
  static std::shared_ptr<const Document> open(const std::filesystem::path& path, Cache& cache);
  ~Document();

  const std::filesystem::path& path() const { return path_; }
  /// File name without folders, for titles.
  std::string name() const { return path_.filename().string(); }
  /// The prefix of everything in the cache that belongs to this opening of the file.
  const std::string& key() const { return key_; }
  const TraceInfo& info() const { return file_.info(); }
  const TraceFile& file() const { return file_; }
  /// The trace for analyses: whole heads of q, k, v and lse are kept in the cache once read. A head
  /// that cannot be read whole (NaN somewhere) is read range by range.
  const TraceSource& source() const { return *source_; }

  /// Sentences for the banner: a partial or recovered file, missing captures, oddities.
  const std::vector<std::string>& warnings() const { return warnings_; }
  bool has_text() const { return !token_bytes_.empty(); }
  const std::vector<std::string>& token_bytes() const { return token_bytes_; }
  /// "id 1234" without recorded text. Positions beyond the trace give an empty text.
  std::string token_text(Index pos) const;
  /// The file on disk is another one than the one that was opened, or is gone.
  bool has_changed() const;
  bool is_gone() const;

 private:
  Document(std::filesystem::path path, TraceFile file, std::optional<FileStamp> stamp,
           Cache& cache);
  std::filesystem::path path_;
  TraceFile file_;
  Cache& cache_;
  std::string key_;
  std::unique_ptr<TraceSource> source_;
  std::vector<std::string> warnings_;
  std::vector<std::string> token_bytes_;
  std::optional<FileStamp> stamp_;  // just before it was opened
};

}  // namespace kvscope::gui

// An open trace: its file, its tokens as text, what is odd about it, and slices that stay in the
// cache.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/trace/source.hpp"
#include "gui/model/jobs/cache.hpp"
#include "traces/reader.hpp"

namespace kvscope::gui {

/// Tells one state of a trace or result from another: when it was last written, and how long it is.
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
  /// outlive the document. `before`: an earlier state of the same recording, if it was open: what
  /// was read of it is read on from there (its rows do not change any more).
  static std::shared_ptr<const Document> open(const std::filesystem::path& path, Cache& cache,
                                              const Document* before = nullptr);
  ~Document();

  const std::filesystem::path& path() const { return path_; }
  /// File name without folders, for titles.
  std::string name() const { return path_.filename().string(); }
  /// The prefix of everything in the cache that belongs to this opening of the file.
  const std::string& key() const { return key_; }
  /// The prefix of what stays true while the recording grows: rows of tensors, rows of maps. All
  /// states of one recording share it.
  const std::string& growing_key() const { return recording_->key; }
  /// It was seen to grow: how many tokens a second, since it was first opened.
  std::optional<double> tokens_per_second() const;
  /// The file is one that a recorder still writes, or wrote until it was killed.
  bool is_being_recorded() const { return info().status == TraceStatus::recording; }
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
  /// Texts of the tokens in the range as one line, for tooltips; beyond about `most` bytes whole
  /// tokens are left out and "…" stands for them. Without recorded text: the ids.
  std::string text_of(TokenRange range, std::size_t most) const;
  /// The file on disk is another one than the one that was opened, or is gone.
  bool has_changed() const;
  bool is_gone() const;

 private:
  /// What all states of one recording share; its last one takes what they cached with it.
  struct Recording {
    Recording(Cache& kept_in, std::string prefix, Index n_tokens)
        : cache(kept_in), key(std::move(prefix)), n_first(n_tokens) {}
    ~Recording() { cache.drop_prefix(key); }
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;
    Cache& cache;
    std::string key;
    Index n_first;  // tokens when it was first opened
    std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
  };
  Document(std::filesystem::path path, TraceFile file, std::optional<FileStamp> stamp, Cache& cache,
           const Document* before);
  std::filesystem::path path_;
  TraceFile file_;
  Cache& cache_;
  std::string key_;
  std::shared_ptr<const Recording> recording_;
  std::optional<double> tokens_per_second_;
  std::unique_ptr<TraceSource> source_;
  std::vector<std::string> warnings_;
  std::vector<std::string> token_bytes_;
  std::optional<FileStamp> stamp_;  // just before it was opened
};

/// The prefix of everything in the cache that is made of a trace and of a second one beside it: a
/// draft, or what it is compared with. Null: there is none.
std::string documents_key(const Document& document, const Document* second);

/// compute(trace, request, job) as the work of a job, which holds the document.
template <class Request, class Compute>
auto on_trace(std::shared_ptr<const Document> trace, Request request, Compute compute) {
  return [=](auto& job) { return compute(trace->source(), request, job); };
}
/// compute(trace, second, request, job); `second`: null, or a draft or what is compared with.
template <class Request, class Compute>
auto on_traces(std::shared_ptr<const Document> trace, std::shared_ptr<const Document> second,
               Request request, Compute compute) {
  return [=](auto& job) {
    return compute(trace->source(), second ? &second->source() : nullptr, request, job);
  };
}

}  // namespace kvscope::gui

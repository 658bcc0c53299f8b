#include "gui/model/document.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>

#include "core/base/error.hpp"
#include "gui/model/token_text.hpp"

namespace kvscope::gui {

namespace fs = std::filesystem;

namespace {

/// Heads larger than this part of the cache are read each time.
constexpr std::size_t kSharePerSlice = 4;

struct Slice {
  Tensor<float> rows;
};

/// A trace whose slices are kept: the whole head at the first read, copies of rows afterwards.
class CachedSource final : public TraceSource {
 public:
  CachedSource(const TraceFile& file, Cache& cache, std::string key)
      : file_(file), cache_(cache), key_(std::move(key)) {}

  const TraceInfo& info() const override { return file_.info(); }
  std::string where() const override { return file_.where(); }
  std::span<const TokenId> tokens() const override { return file_.tokens(); }
  std::vector<std::string> token_bytes() const override { return file_.token_bytes(); }

  Tensor<float> read_q(Index layer, Index head, TokenRange range) const override {
    return rows("q", layer, head, range, info().rows, info().d_head, &TraceFile::read_q);
  }
  Tensor<float> read_k(Index layer, Index head, TokenRange range) const override {
    return rows("k", layer, head, range, all(), info().d_head, &TraceFile::read_k);
  }
  Tensor<float> read_v(Index layer, Index head, TokenRange range) const override {
    return rows("v", layer, head, range, all(), info().d_head, &TraceFile::read_v);
  }
  Tensor<float> read_lse(Index layer, Index head, TokenRange range) const override {
    return rows("lse", layer, head, range, info().rows, 1, &TraceFile::read_lse);
  }
  // Side tensors are read as they are asked for.
  Tensor<float> read_side(SideTensor what, Index layer, Index head,
                          TokenRange range) const override {
    return file_.read_side(what, layer, head, range);
  }
  Tensor<std::int32_t> read_selected(Index layer, Index list, TokenRange range) const override {
    return file_.read_selected(layer, list, range);
  }

 private:
  using Read = Tensor<float> (TraceFile::*)(Index, Index, TokenRange) const;
  TokenRange all() const { return {0, info().n_tokens}; }

  Tensor<float> rows(const char* what, Index layer, Index head, TokenRange range, TokenRange whole,
                     Index width, Read read) const {
    const auto bytes = static_cast<std::size_t>(whole.size() * width) * sizeof(float);
    const bool inside =
        range.begin >= whole.begin && range.end <= whole.end && range.begin <= range.end;
    if (!inside || bytes > cache_.limit() / kSharePerSlice)
      return (file_.*read)(layer, head, range);
    const std::string key = fmt::format("{}{}/{}/{}", key_, what, layer, head);
    auto slice = cache_.find<Slice>(key);
    if (!slice && !is_broken(key)) {
      try {
        slice = std::make_shared<const Slice>(Slice{(file_.*read)(layer, head, whole)});
        cache_.put(key, slice, bytes);
      } catch (const FormatError&) {
        // Something in the head is damaged: perhaps not what was asked for.
        const std::lock_guard lock(mutex_);
        broken_.insert(key);
      }
    }
    if (!slice) return (file_.*read)(layer, head, range);
    Tensor<float> part(width == 1 && slice->rows.shape().rank == 1 ? Shape{range.size()}
                                                                   : Shape{range.size(), width});
    const float* from = slice->rows.data() + (range.begin - whole.begin) * width;
    std::copy_n(from, range.size() * width, part.data());
    return part;
  }

  bool is_broken(const std::string& key) const {
    const std::lock_guard lock(mutex_);
    return broken_.contains(key);
  }

  const TraceFile& file_;
  Cache& cache_;
  std::string key_;
  mutable std::mutex mutex_;
  mutable std::set<std::string> broken_;  // heads that cannot be read whole
};

std::vector<std::string> warnings_of(const TraceFile& file) {
  std::vector<std::string> sentences;
  const TraceInfo& info = file.info();
  if (info.status != TraceStatus::complete) {
    sentences.push_back(fmt::format("This recording is {}: {} of {} planned tokens are here.",
                                    name_of(info.status), info.n_tokens, file.planned().n_tokens));
  }
  if (info.status == TraceStatus::recording) {
    sentences.push_back(
        "It is still being written, or its writer was killed: kvscope recover makes a whole file "
        "of it.");
  }
  if (!info.capture.qkv) {
    sentences.push_back("It holds no q, k and v, which every view but the token strip needs.");
  }
  if (info.rows.size() < info.n_tokens) {
    sentences.push_back(fmt::format("Queries were recorded for positions {} to {} only.",
                                    info.rows.begin, info.rows.end - 1));
  }
  for (const auto& warning : file.warnings()) sentences.push_back(warning);
  return sentences;
}

}  // namespace

std::optional<FileStamp> file_stamp(const fs::path& path) {
  std::error_code error;
  FileStamp stamp;
  stamp.written = fs::last_write_time(path, error);
  if (error) return std::nullopt;
  stamp.size = fs::file_size(path, error);
  if (error) return std::nullopt;
  return stamp;
}

Document::Document(fs::path path, TraceFile file, std::optional<FileStamp> stamp, Cache& cache)
    : path_(std::move(path)), file_(std::move(file)), cache_(cache), stamp_(stamp) {
  static std::atomic<std::uint64_t> count = 0;
  key_ = fmt::format("trace{}/", ++count);
  source_ = std::make_unique<CachedSource>(file_, cache_, key_);
  warnings_ = warnings_of(file_);
  token_bytes_ = file_.token_bytes();
}

Document::~Document() {
  cache_.drop_prefix(key_);
}

std::shared_ptr<const Document> Document::open(const fs::path& path, Cache& cache) {
  const auto stamp = file_stamp(path);
  return std::shared_ptr<const Document>(
      new Document(path, TraceFile::open(path, {.allow_partial = true}), stamp, cache));
}

std::string Document::token_text(Index pos) const {
  if (pos < 0 || pos >= info().n_tokens) return {};
  if (!has_text()) return fmt::format("id {}", file_.tokens()[static_cast<std::size_t>(pos)]);
  return printable(token_bytes_[static_cast<std::size_t>(pos)]);
}

bool Document::is_gone() const {
  std::error_code error;
  return !fs::exists(path_, error);
}

bool Document::has_changed() const {
  return file_stamp(path_) != stamp_;
}

}  // namespace kvscope::gui

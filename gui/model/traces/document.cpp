#include "gui/model/traces/document.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>

#include "core/base/error.hpp"
#include "core/trace/part.hpp"
#include "gui/model/tokens/token_text.hpp"

namespace kvscope::gui {

namespace fs = std::filesystem;

namespace {

/// Heads larger than this part of the cache are read each time.
constexpr std::size_t kSharePerSlice = 4;

struct Slice {
  Tensor<float> rows;
  TokenRange range;  // of positions; a recording that grew has more
};

/// A trace whose slices are kept: the whole head at the first read, copies of rows afterwards. Of a
/// recording that grew, only what is new is read.
class CachedSource final : public TracePart {
 public:
  CachedSource(const TraceFile& file, Cache& cache, std::string key)
      : TracePart(file, file.info()), cache_(cache), key_(std::move(key)) {}

  Tensor<float> read(TraceTensor what, Index layer, Index head, TokenRange range) const override {
    const Index width = what == TraceTensor::lse ? 1 : info().shape(layer).d_head;
    const TokenRange whole = is_of_queries(what) ? info().rows : TokenRange{0, info().n_tokens};
    const auto bytes = static_cast<std::size_t>(whole.size() * width) * sizeof(float);
    const bool inside =
        range.begin >= whole.begin && range.end <= whole.end && range.begin <= range.end;
    if (!inside || bytes > cache_.limit() / kSharePerSlice)
      return TracePart::read(what, layer, head, range);
    const std::string key = fmt::format("{}{}/{}/{}", key_, enum_name(what), layer, head);
    auto slice = cache_.find<Slice>(key);
    const bool is_whole = slice && slice->range == whole;
    if (!is_whole && !is_broken(key)) {
      try {
        slice = extended(slice.get(), whole, width,
                         [&](TokenRange part) { return TracePart::read(what, layer, head, part); });
        cache_.put(key, slice, bytes);
      } catch (const FormatError&) {
        // Something in the head is damaged: perhaps not what was asked for.
        slice = nullptr;
        const std::lock_guard lock(mutex_);
        broken_.insert(key);
      }
    }
    if (!slice) return TracePart::read(what, layer, head, range);
    Tensor<float> part(width == 1 && slice->rows.shape().rank == 1 ? Shape{range.size()}
                                                                   : Shape{range.size(), width});
    const float* from = slice->rows.data() + (range.begin - whole.begin) * width;
    std::copy_n(from, range.size() * width, part.data());
    return part;
  }

 private:
  /// All rows: those of an earlier state as far as it has them, the others read.
  template <class ReadPart>
  static std::shared_ptr<const Slice> extended(const Slice* before, TokenRange whole, Index width,
                                               const ReadPart& read) {
    const bool continues = before != nullptr && before->range.begin == whole.begin &&
                           before->range.size() > 0 && before->range.end < whole.end;
    if (!continues) return std::make_shared<const Slice>(Slice{read(whole), whole});
    const Tensor<float> fresh = read({before->range.end, whole.end});
    auto all = fresh.shape().rank == 1 ? Tensor<float>::uninitialized({whole.size()})
                                       : Tensor<float>::uninitialized({whole.size(), width});
    float* next = std::copy_n(before->rows.data(), before->range.size() * width, all.data());
    std::copy_n(fresh.data(), fresh.count(), next);
    return std::make_shared<const Slice>(Slice{std::move(all), whole});
  }

  bool is_broken(const std::string& key) const {
    const std::lock_guard lock(mutex_);
    return broken_.contains(key);
  }

  Cache& cache_;
  std::string key_;
  mutable std::mutex mutex_;
  mutable std::set<std::string> broken_;  // heads that cannot be read whole
};

std::vector<std::string> warnings_of(const TraceFile& file) {
  std::vector<std::string> sentences;
  const TraceInfo& info = file.info();
  if (info.status != TraceStatus::complete) {
    const bool is_growing = info.status == TraceStatus::recording;
    sentences.push_back(fmt::format("This recording is {}: {} of {} planned tokens are here.",
                                    is_growing ? "going on" : enum_name(info.status), info.n_tokens,
                                    file.planned().n_planned()));
  }
  if (info.status == TraceStatus::recording) {
    sentences.push_back(
        "New rows appear here as they are written; if its writer was killed, kvscope recover makes "
        "a whole file of it.");
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

Document::Document(fs::path path, TraceFile file, std::optional<FileStamp> stamp, Cache& cache,
                   const Document* before)
    : path_(std::move(path)), file_(std::move(file)), cache_(cache), stamp_(stamp) {
  static std::atomic<std::uint64_t> count = 0;
  const std::uint64_t number = ++count;
  key_ = fmt::format("trace{}/", number);
  if (before != nullptr) {
    using Seconds = std::chrono::duration<double>;
    recording_ = before->recording_;
    const double seconds = Seconds(std::chrono::steady_clock::now() - recording_->since).count();
    const Index n = info().n_tokens - recording_->n_first;
    if (n > 0 && seconds > 0.0) tokens_per_second_ = static_cast<double>(n) / seconds;
  } else {
    recording_ = std::make_shared<const Recording>(cache_, fmt::format("recording{}/", number),
                                                   info().n_tokens);
  }
  source_ = std::make_unique<CachedSource>(file_, cache_, recording_->key);
  warnings_ = warnings_of(file_);
  token_bytes_ = file_.token_bytes();
}

Document::~Document() {
  cache_.drop_prefix(key_);
}

namespace {

/// The same recording, further on: what is whole of it stays as it is. Its uuid comes at the end.
bool continues(const TraceFile& now, const TraceFile& before) {
  const TraceInfo& a = before.info();
  const TraceInfo& b = now.info();
  const auto first = before.tokens();
  const auto all = now.tokens();
  return a.status == TraceStatus::recording && a.created == b.created && a.host == b.host &&
         a.model_name == b.model_name && a.command_line == b.command_line && a.dtype == b.dtype &&
         a.layers == b.layers && a.q_heads == b.q_heads && a.d_head == b.d_head &&
         a.layer_shapes == b.layer_shapes && a.rows.begin == b.rows.begin &&
         first.size() <= all.size() && std::equal(first.begin(), first.end(), all.begin());
}

}  // namespace

std::shared_ptr<const Document> Document::open(const fs::path& path, Cache& cache,
                                               const Document* before) {
  const auto stamp = file_stamp(path);
  TraceFile file = TraceFile::open(path, {.allow_partial = true});
  if (before != nullptr && !continues(file, before->file())) before = nullptr;
  return std::shared_ptr<const Document>(new Document(path, std::move(file), stamp, cache, before));
}

std::optional<double> Document::tokens_per_second() const {
  return tokens_per_second_;
}

std::string Document::token_text(Index pos) const {
  if (pos < 0 || pos >= info().n_tokens) return {};
  if (!has_text()) return fmt::format("id {}", file_.tokens()[static_cast<std::size_t>(pos)]);
  return printable(token_bytes_[static_cast<std::size_t>(pos)]);
}

std::string Document::text_of(TokenRange range, std::size_t most) const {
  std::string text;
  for (Index pos = range.begin; pos < range.end; ++pos) {
    const std::string token = token_text(pos);
    if (!text.empty() && text.size() + token.size() > most) return text + "…";
    if (!has_text() && !text.empty()) text += ", ";
    text += token;
  }
  return text;
}

bool Document::is_gone() const {
  std::error_code error;
  return !fs::exists(path_, error);
}

bool Document::has_changed() const {
  return file_stamp(path_) != stamp_;
}

std::string documents_key(const Document& document, const Document* second) {
  return second != nullptr ? document.key() + second->key() : document.key();
}

}  // namespace kvscope::gui

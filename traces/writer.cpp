#include "traces/writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <variant>

#include "core/base/error.hpp"
#include "traces/copy.hpp"
#include "traces/encode.hpp"
#include "traces/header.hpp"
#include "traces/trace_writer.hpp"

namespace kvscope {

namespace {

constexpr Index kLeastForThreads = Index{64} << 10;  // bytes: fewer are written before one wakes up

/// Rank 3 [heads, n, row]; rank 2 is [heads, n] with a head axis and [n, row] without. `unit`: what
/// the last axis counts of an element.
template <class T>
TensorView<const T> as_heads(const GrowingArray& array, TensorView<const T> rows, Index unit = 1) {
  if (rows.rank() == 3) return rows;
  if (rows.rank() != 2)
    throw ShapeError("{}: rank {}, expected 2 or 3", array.spec.path, rows.rank());
  if (!array.spec.has_heads)
    return {rows.data(), {1, rows.dim(0), rows.dim(1)}, {0, rows.stride(0), 1}};
  return {rows.data(), {rows.dim(0), rows.dim(1) / unit, unit}, {rows.stride(0), unit, 1}};
}

}  // namespace

std::pair<std::vector<GrowingArray>, TracePlaces> places_of(TraceLayout& layout) {
  // An empty array has no place in the file, and nothing is ever written to it.
  const auto offset_of = [](const h5::Dataset& dataset) {
    return dataset.file_offset().value_or(0);
  };
  std::vector<GrowingArray> arrays;
  for (std::size_t i = 0; i < layout.arrays.size(); ++i) {
    GrowingArray array;
    array.spec = layout.arrays[i];
    array.data_offset = offset_of(layout.data(i));
    array.checksum_offset = offset_of(layout.checksums(i));
    array.running.resize(static_cast<std::size_t>(array.spec.n_heads()));
    array.table.reserve(layout.info.calls.size() * array.running.size());
    arrays.push_back(std::move(array));
  }
  TracePlaces at;
  if (layout.token_bytes) {
    at.text = offset_of(*layout.token_bytes);
    at.text_index = offset_of(*layout.token_offsets);
    at.text_checksum = offset_of(*layout.text_checksums);
  }
  at.progress = offset_of(*layout.progress);
  if (layout.moved_scores) at.moved_scores = offset_of(*layout.moved_scores);
  return {std::move(arrays), at};
}

// ---- begin -----------------------------------------------------------------------------------

void TraceWriter::begin(const TraceInfo& info) {
  if (file_.is_open()) throw ConfigError("{}: begin was called twice", part_.string());
  check_trace_info(info);
  check_output(out_, options_.overwrite, FileKind::trace);
  if (std::filesystem::exists(part_) && is_being_recorded(part_))
    throw IoError("{} is being recorded by another process", part_.string());
  if (options_.kept_calls.value_or(0) > 0) return go_on(*options_.kept_calls);
  make_room();
  info_ = info;
  info_.status = TraceStatus::recording;
  info_.uuid.clear();
  info_.content_hash.clear();
  // so that OUT.part is never half laid out
  const NewFile draft(out_, options_.overwrite, FileKind::trace);
  TraceLayout layout = create_layout(draft.temporary(), info_);
  std::tie(arrays_, at_) = places_of(layout);
  layout.file.close();
  publish_file(draft.temporary(), part_, /*overwrite=*/false);
  open_file();
}

/// What an earlier recording left goes away, if that was asked for; what a kill left of a layout
/// always does.
void TraceWriter::make_room() const {
  remove_old_temporaries(out_);
  if (!std::filesystem::exists(part_)) return;
  if (!options_.overwrite && !options_.kept_calls) {
    throw IoError(
        "{} is left over from a recording that did not end: go on with it (--resume), save it with "
        "'kvscope recover {}', delete it, or ask to overwrite it",
        part_.string(), part_.string());
  }
  if (!is_unfinished_recording(part_)) {
    throw IoError(
        "{} is no recording that did not end, and the new one would take its place: move it "
        "away, or record under another name",
        part_.string());
  }
  std::filesystem::remove(part_);
}

/// With the first n calls of an earlier run, as that run described itself.
void TraceWriter::go_on(Index n_calls) {
  TraceLayout layout = open_layout(part_);
  info_ = layout.info;
  info_.status = TraceStatus::recording;
  info_.uuid.clear();
  info_.content_hash.clear();
  std::tie(arrays_, at_) = places_of(layout);
  for (std::size_t i = 0; i < arrays_.size(); ++i) {
    const h5::Dataset& table = layout.checksums(i);
    h5::Dims kept = table.dims();
    kept.front() = n_calls;
    arrays_[i].table.resize(static_cast<std::size_t>(h5::count(kept)));
    table.read(h5::Dims(kept.size(), 0), kept, arrays_[i].table.data());
  }
  tokens_.resize(
      static_cast<std::size_t>(info_.calls[static_cast<std::size_t>(n_calls - 1)].tokens.end));
  const auto n_tokens = static_cast<Index>(tokens_.size());
  layout.data(0).read({0}, {n_tokens}, tokens_.data());
  if (layout.text_checksums) {
    text_table_.resize(static_cast<std::size_t>(n_calls));
    layout.text_checksums->read({0}, {n_calls}, text_table_.data());
    layout.token_offsets->read({n_tokens}, {1}, &n_text_bytes_);
  }
  layout.file.close();
  open_file();
  n_committed_ = static_cast<std::size_t>(n_calls);
  const std::int64_t progress = n_calls;  // the calls behind it are written again
  put(at_.progress, &progress, sizeof progress);
}

void TraceWriter::open_file() {
  file_ = RawFile::open(part_);
  file_.lock_as_recorder();
  pool_ = std::make_unique<ThreadPool>(std::max(options_.n_threads, 1));
  scratch_.resize(static_cast<std::size_t>(pool_->n_threads()));
}

void TraceWriter::announce_prompt(std::span<const TokenId> ids) {
  require_open("announce_prompt");
  if (static_cast<Index>(ids.size()) != info_.n_prompt)
    throw ShapeError("/tokens: a prompt of {} ids, expected {}", ids.size(), info_.n_prompt);
  file_.write(arrays_.front().data_offset, ids.data(), ids.size_bytes());
}

// ---- rows ------------------------------------------------------------------------------------

const ForwardCall& TraceWriter::call() const {
  return info_.calls[n_committed_];
}

void TraceWriter::require_open(const char* what) const {
  if (!file_.is_open())
    throw ConfigError("{}: {} before begin or after finish", out_.string(), what);
  if (n_committed_ >= info_.calls.size()) {
    throw ConfigError("{}: {} after the last of {} planned calls", out_.string(), what,
                      info_.calls.size());
  }
}

GrowingArray& TraceWriter::array_at(Index layer, const char* name) {
  return array_at(layer < 0 ? name : schema::layer_path(layer, name));
}

GrowingArray& TraceWriter::array_at(const std::string& path) {
  for (auto& array : arrays_) {
    if (array.spec.path == path) return array;
  }
  throw ConfigError("{}: {} is not part of this recording", out_.string(), path);
}

std::string TraceWriter::recovery_hint() const {
  if (n_committed_ == 0) return "no call was whole yet, so nothing is kept";
  return fmt::format(
      "the {} calls recorded before are safe in {}: {}'kvscope recover {}' makes a trace of them",
      n_committed_, part_.string(),
      options_.kept_calls ? "the same command goes on with them, " : "", part_.string());
}

void TraceWriter::put(std::uint64_t offset, const void* data, std::size_t n_bytes) {
  try {
    file_.write(offset, data, n_bytes);
  } catch (const IoError& error) {
    throw WriteRefused("{}; {}", error.what(), recovery_hint());
  }
  bytes_written_ += static_cast<std::int64_t>(n_bytes);
}

void TraceWriter::check_rows(const GrowingArray& array, Index n_heads, Index n, Index row) const {
  const TokenRange positions = schema::positions_of(array.spec, info_, call());
  const Index expected_row = array.spec.filled_row_size(call().tokens.end);
  if (n_heads != array.spec.n_heads() || n > positions.size() - array.n_filled ||
      row != expected_row) {
    throw ShapeError(
        "{}: {} heads, {} positions, rows of {}; expected {} heads, at most {} "
        "positions, rows of {}",
        array.spec.path, n_heads, n, row, array.spec.n_heads(), positions.size() - array.n_filled,
        expected_row);
  }
}

/// Writes n stored rows of one head after those that the call has already.
void TraceWriter::append_head(GrowingArray& array, Index head, Index n,
                              std::span<const std::byte> bytes, Index filled_row) {
  const auto& spec = array.spec;
  const std::size_t element = h5::size_of(spec.type);
  const Index first = schema::positions_of(spec, info_, call()).begin + array.n_filled;
  const auto place = [&](Index position) {
    const Index row = head * spec.n_positions() + position;
    return array.data_offset + static_cast<std::uint64_t>(row * spec.row_size()) * element;
  };
  if (filled_row == spec.row_size()) {
    put(place(first), bytes.data(), bytes.size());
  } else {
    const std::size_t row_bytes = static_cast<std::size_t>(filled_row) * element;
    for (Index i = 0; i < n; ++i) {
      put(place(first + i), bytes.data() + static_cast<std::size_t>(i) * row_bytes, row_bytes);
    }
  }
  array.running[static_cast<std::size_t>(head)].add(bytes.data(), bytes.size());
}

/// Each head's checksum is that of its rows alone, so any order and any thread will do.
void TraceWriter::write_pieces(const std::vector<Piece>& pieces) {
  const auto write = [&](Index i, int worker) {
    const auto& [array, head, rows] = pieces[static_cast<std::size_t>(i)];
    const Index first = schema::positions_of(array->spec, info_, call()).begin + array->n_filled;
    const auto bytes =
        encode_rows({array->spec, head, first}, rows, scratch_[static_cast<std::size_t>(worker)]);
    append_head(*array, head, rows.dim(0), bytes, rows.dim(1));
  };
  Index n_bytes = 0;
  for (const Piece& piece : pieces) n_bytes += piece.rows.bytes().shape().count();
  const auto n_pieces = static_cast<Index>(pieces.size());
  if (n_bytes < kLeastForThreads) {
    for (Index i = 0; i < n_pieces; ++i) write(i, 0);
  } else {
    pool_->parallel_for(n_pieces, write);
  }
  for (const Piece& piece : pieces) {
    if (piece.head == 0) piece.array->n_filled += piece.rows.dim(0);
  }
}

void TraceWriter::append_integers(GrowingArray& array, TensorView<const std::int32_t> rows) {
  if (rows.empty() && schema::positions_of(array.spec, info_, call()).size() == 0) return;
  const TensorView<const std::int32_t> block = as_heads(array, rows);
  check_rows(array, block.dim(0), block.dim(1), block.dim(2));
  std::vector<std::byte>& scratch = scratch_.front();
  for (Index head = 0; head < block.dim(0); ++head) {
    scratch.clear();
    for (Index i = 0; i < block.dim(1); ++i) {
      const auto bytes = std::as_bytes(block.sub(head).row(i));
      scratch.insert(scratch.end(), bytes.begin(), bytes.end());
    }
    append_head(array, head, block.dim(1), scratch, block.dim(2));
  }
  array.n_filled += block.dim(1);
}

/// Floats become pieces; integers, which are few, are written at once.
void TraceWriter::add_rows(GrowingArray& array, const AnyRows& any, std::vector<Piece>& pieces) {
  if (const auto* integers = std::get_if<TensorView<const std::int32_t>>(&any))
    return append_integers(array, *integers);
  const TypedRows& given = std::get<TypedRows>(any);
  if (given.empty() && schema::positions_of(array.spec, info_, call()).size() == 0) return;
  const auto unit = static_cast<Index>(size_of(given.dtype()));
  const TypedRows rows(given.dtype(), as_heads(array, given.bytes(), unit));
  check_rows(array, rows.dim(0), rows.dim(1), rows.dim(2));
  for (Index head = 0; head < rows.dim(0); ++head) pieces.push_back({&array, head, rows.sub(head)});
}

void TraceWriter::write(const CallRows& rows) {
  require_open("write");
  std::vector<Piece> pieces;
  for (const ArrayRows& one : rows.arrays)
    add_rows(array_at(one.layer, one.name), one.rows, pieces);
  write_pieces(pieces);
}

void TraceWriter::append(const std::string& path, const AnyRows& rows) {
  require_open("append");
  std::vector<Piece> pieces;
  add_rows(array_at(path), rows, pieces);
  write_pieces(pieces);
}

void TraceWriter::write_tokens(std::span<const TokenId> ids, std::span<const std::string> bytes) {
  require_open("write_tokens");
  const TokenRange range = call().tokens;
  GrowingArray& array = arrays_.front();
  if (static_cast<Index>(ids.size()) != range.size() || has_tokens_)
    throw ShapeError("/tokens: {} ids for a call of {} tokens", ids.size(), range.size());
  append_head(array, 0, range.size(), std::as_bytes(ids), 1);
  array.n_filled = range.size();
  tokens_.insert(tokens_.end(), ids.begin(), ids.end());
  has_tokens_ = true;
  if (info_.token_text_capacity == 0) return;

  if (!bytes.empty() && bytes.size() != ids.size())
    throw ShapeError("/token_bytes: {} texts for {} tokens", bytes.size(), ids.size());
  std::string text;
  std::vector<std::int64_t> index = {n_text_bytes_};
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (!bytes.empty()) text += bytes[i];
    index.push_back(n_text_bytes_ + static_cast<std::int64_t>(text.size()));
  }
  if (index.back() > info_.token_text_capacity) {
    throw ConfigError("/token_bytes: the text of the tokens needs more than the {} bytes planned",
                      info_.token_text_capacity);
  }
  put(at_.text + static_cast<std::uint64_t>(n_text_bytes_), text.data(), text.size());
  put(at_.text_index + static_cast<std::uint64_t>(range.begin) * 8, index.data(), index.size() * 8);
  Checksum checksum;
  checksum.add(index.data(), index.size() * 8);
  checksum.add(text.data(), text.size());
  const std::uint64_t value = checksum.value();
  put(at_.text_checksum + n_committed_ * 8, &value, 8);
  text_table_.push_back(value);
  n_text_bytes_ = index.back();
}

void TraceWriter::write_moved_scores(std::span<const float> by_layer) {
  if (info_.moved_scores.empty()) return;
  if (by_layer.size() != info_.moved_scores.size())
    throw ShapeError("{}: {} layers, expected {}", schema::kMovedScores, by_layer.size(),
                     info_.moved_scores.size());
  put(at_.moved_scores, by_layer.data(), by_layer.size_bytes());
}

// ---- commit and finish -----------------------------------------------------------------------

void TraceWriter::commit_call() {
  require_open("commit_call");
  for (const auto& array : arrays_) {
    const Index expected = schema::positions_of(array.spec, info_, call()).size();
    if (array.n_filled != expected) {
      throw ConfigError("{}: call {} wrote {} of {} positions", array.spec.path, n_committed_,
                        array.n_filled, expected);
    }
  }
  for (auto& array : arrays_) {
    const std::size_t n_heads = array.running.size();
    std::vector<std::uint64_t> values;
    for (auto& checksum : array.running) {
      values.push_back(checksum.value());
      checksum.reset();
    }
    put(array.checksum_offset + n_committed_ * n_heads * 8, values.data(), n_heads * 8);
    array.table.insert(array.table.end(), values.begin(), values.end());
    array.n_filled = 0;
  }
  const std::int64_t n_calls = static_cast<std::int64_t>(n_committed_) + 1;
  put(at_.progress, &n_calls, sizeof n_calls);
  ++n_committed_;
  has_tokens_ = false;
}

void TraceWriter::seal(TraceStatus status, h5::File file) {
  std::vector<std::vector<std::uint64_t>> tables;
  for (const auto& array : arrays_) tables.push_back(array.table);
  info_.status = status;
  info_.content_hash = hash_contents(info_, tokens_, tables, text_table_);
  info_.uuid = derive_uuid(info_);
  seal_header(file, info_);
  file.close();
}

/// Writes a second file with the true shapes, through the code that also serves recovery.
void TraceWriter::make_copy(TraceStatus status, std::optional<int> gzip_level,
                            std::stop_token stop) {
  CopyOptions copy;
  copy.status = status;
  copy.gzip_level = gzip_level;
  copy.stop = std::move(stop);
  copy.overwrite = options_.overwrite;
  UnnamedCopy made = copy_unnamed(part_, out_, copy, {});
  info_.content_hash = made.report.content_hash;
  copy_.emplace(std::move(made.file));
}

/// False if that was stopped; the .part is then what it was.
bool TraceWriter::make_compressed(TraceStatus status) {
  if (status == TraceStatus::interrupted || options_.stop.stop_requested()) return false;
  try {
    make_copy(status, options_.gzip_level, options_.stop);
  } catch (const Interrupted&) {
    return false;
  }
  return true;
}

/// finish() but for the name.
void TraceWriter::complete(TraceStatus status) {
  if (!file_.is_open()) throw ConfigError("{}: finish before begin", out_.string());
  const std::size_t n_planned = info_.calls.size();
  // A decoded answer may end before the steps that were planned for it.
  const bool ends_decoding = n_committed_ > 0 && info_.calls[n_committed_ - 1].is_decode;
  if (status == TraceStatus::complete && n_committed_ != n_planned && !ends_decoding) {
    throw ConfigError("{}: it has {} of {} calls, so it is not complete", out_.string(),
                      n_committed_, n_planned);
  }
  if (n_committed_ == 0) {
    file_.close();
    remove_quietly(part_);
    return;
  }
  file_.sync();
  if (options_.gzip_level && make_compressed(status)) return;
  if (n_committed_ < n_planned) {
    // The shapes change: write a second file with the true ones, through the code that also serves
    // recovery.
    make_copy(status, {}, {});
    return;
  }
  file_.close();
  h5::File file;
  try {
    file = h5::File::open(part_, h5::File::Access::write);
  } catch (const IoError&) {
    // Another program that looks at the .part (h5py, kvscope info) holds a lock against writers,
    // not readers: copy instead.
    make_copy(status, {}, {});
    return;
  }
  seal(status, std::move(file));
}

void TraceWriter::finish(TraceStatus status) {
  complete(status);
  if (n_committed_ == 0) return;  // there is no file
  // What appeared at OUT meanwhile may be of another kind.
  if (options_.overwrite) check_output(out_, options_.overwrite, FileKind::trace);
  if (!copy_) {
    publish_file(part_, out_, options_.overwrite);
    return;
  }
  copy_->publish();
  copy_.reset();
  file_.close();
  remove_quietly(part_);
}

std::unique_ptr<TraceReceiver> create_trace(const std::filesystem::path& out,
                                            const WriterOptions& options) {
  if (options.gzip_level && (*options.gzip_level < 1 || *options.gzip_level > 9))
    throw ConfigError("gzip level: expected 1 to 9, found {}", *options.gzip_level);
  check_output(out, options.overwrite, FileKind::trace);
  auto writer = std::make_unique<TraceWriter>(out, options);
  if (options.queue_bytes == 0) return writer;
  return queued(std::move(writer), options.queue_bytes);
}

std::int64_t estimated_file_bytes(const TraceInfo& info) {
  constexpr std::int64_t kPerArray = 3072;  // object headers, attributes, group entries; measured
  constexpr std::int64_t kFixed = 16384;
  std::int64_t n_bytes = kFixed + static_cast<std::int64_t>(info.model_config.size()) +
                         info.token_text_capacity + 8 * info.n_tokens +
                         24 * static_cast<std::int64_t>(info.calls.size());
  for (const auto& array : schema::trace_arrays(info)) {
    n_bytes +=
        h5::count(array.dims) * static_cast<std::int64_t>(h5::size_of(array.type)) + kPerArray;
    n_bytes += 8 * array.n_heads() * static_cast<std::int64_t>(info.calls.size());
  }
  return n_bytes;
}

}  // namespace kvscope

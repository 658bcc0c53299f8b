// Another plan while a trace is being written.
#include <algorithm>
#include <tuple>
#include <utility>

#include "core/base/error.hpp"
#include "traces/trace_writer.hpp"

namespace kvscope {

namespace {

constexpr std::size_t kCopyBytes = std::size_t{8} << 20;

/// Copies stretches of one file into another.
class Mover {
 public:
  Mover(RawFile& from, RawFile& to) : from_(from), to_(to) {}

  void move(std::uint64_t from, std::uint64_t to, std::uint64_t n_bytes) {
    while (n_bytes > 0) {
      buffer_.resize(std::min<std::uint64_t>(n_bytes, kCopyBytes));
      from_.read(from, buffer_.data(), buffer_.size());
      to_.write(to, buffer_.data(), buffer_.size());
      from += buffer_.size();
      to += buffer_.size();
      n_bytes -= buffer_.size();
    }
  }

  /// The first n positions of every head. Rows of keys may be longer or shorter than they were.
  void move(const GrowingArray& from, const GrowingArray& to, Index n) {
    const auto bytes_of = [](const schema::ArraySpec& spec, Index rows) {
      return static_cast<std::uint64_t>(rows * spec.row_size()) * h5::size_of(spec.type);
    };
    const std::uint64_t row = std::min(bytes_of(from.spec, 1), bytes_of(to.spec, 1));
    const bool is_one_piece = bytes_of(from.spec, 1) == bytes_of(to.spec, 1);
    for (Index head = 0; head < to.spec.n_heads(); ++head) {
      const auto old_row = head * from.spec.n_positions();
      const auto new_row = head * to.spec.n_positions();
      const auto move_rows = [&](Index first, std::uint64_t n_bytes) {
        move(from.data_offset + bytes_of(from.spec, old_row + first),
             to.data_offset + bytes_of(to.spec, new_row + first), n_bytes);
      };
      if (is_one_piece) move_rows(0, bytes_of(to.spec, n));
      for (Index i = 0; i < n && !is_one_piece; ++i) move_rows(i, row);
    }
  }

 private:
  RawFile& from_;
  RawFile& to_;
  std::vector<std::byte> buffer_;
};

}  // namespace

void TraceWriter::replan(const TraceInfo& info) {
  if (!file_.is_open()) throw ConfigError("{}: replan before begin", out_.string());
  check_trace_info(info);
  const auto n_calls = static_cast<std::ptrdiff_t>(n_committed_);
  const bool goes_on =
      info.calls.size() >= n_committed_ &&
      std::equal(info.calls.begin(), info.calls.begin() + n_calls, info_.calls.begin(),
                 [](const ForwardCall& a, const ForwardCall& b) { return a.tokens == b.tokens; });
  if (!goes_on)
    throw ConfigError("{}: the new plan does not begin with the {} calls that are there",
                      out_.string(), n_committed_);
  TraceInfo planned = info;
  planned.status = TraceStatus::recording;
  planned.uuid.clear();
  planned.content_hash.clear();
  const NewFile draft = NewFile::beside(out_);
  TraceLayout layout = create_layout(draft.temporary(), planned);
  auto [arrays, at] = places_of(layout);
  layout.file.close();
  RawFile target = RawFile::open(draft.temporary());
  Mover mover(file_, target);
  const auto n_tokens = static_cast<Index>(tokens_.size());
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const GrowingArray& from = arrays_[i];
    const ForwardCall done{{0, n_tokens}, false};
    mover.move(from, arrays[i], schema::positions_of(arrays[i].spec, planned, done).end);
    arrays[i].table = from.table;
    target.write(arrays[i].checksum_offset, from.table.data(),
                 from.table.size() * sizeof from.table[0]);
  }
  if (planned.token_text_capacity > 0 && n_tokens > 0) {
    mover.move(at_.text, at.text, static_cast<std::uint64_t>(n_text_bytes_));
    mover.move(at_.text_index, at.text_index, 8 * static_cast<std::uint64_t>(n_tokens + 1));
    target.write(at.text_checksum, text_table_.data(), text_table_.size() * sizeof text_table_[0]);
  }
  const std::int64_t progress = n_calls;
  target.write(at.progress, &progress, sizeof progress);
  target.close();
  publish_file(draft.temporary(), part_, /*overwrite=*/true);
  file_.close();
  info_ = std::move(planned);
  std::tie(arrays_, at_) = std::pair(std::move(arrays), at);
  open_file();
}

void TraceWriter::finish(TraceStatus status, const TraceInfo& info) {
  TraceInfo whole = info;
  if (whole.token_text_capacity > 0) {
    whole.token_text_capacity =
        whole.calls == info_.calls ? info_.token_text_capacity : std::max<Index>(n_text_bytes_, 1);
  }
  const bool is_planned = whole.calls == info_.calls && whole.n_prompt == info_.n_prompt &&
                          whole.rope_frequencies == info_.rope_frequencies &&
                          whole.rope_amplitudes == info_.rope_amplitudes;
  if (!is_planned) replan(whole);
  finish(status);
  info_.status = status;
  info_.uuid = derive_uuid(info_);
}

}  // namespace kvscope

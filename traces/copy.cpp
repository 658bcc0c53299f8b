#include "traces/copy.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "traces/hash.hpp"
#include "traces/header.hpp"
#include "traces/layout.hpp"
#include "traces/pieces.hpp"

namespace kvscope {

namespace {

/// Rows at full width of the old array become rows of the new one, whose key axis may be shorter.
void copy_block(const schema::ArraySpec& from, const schema::ArraySpec& to, h5::Dataset& out,
                Index head, Index first, Index n, std::span<const std::byte> rows) {
  h5::Dims offset(to.dims.size(), 0);
  h5::Dims size = to.dims;
  if (to.has_heads) {
    offset[0] = head;
    size[0] = 1;
  }
  offset[to.growing_axis()] = first;
  size[to.growing_axis()] = n;
  const std::size_t element = h5::size_of(to.type);
  const std::size_t old_row = static_cast<std::size_t>(from.row_size()) * element;
  const std::size_t new_row = static_cast<std::size_t>(to.row_size()) * element;
  if (old_row == new_row) {
    out.write(offset, size, rows.data());
    return;
  }
  std::vector<std::byte> cut;
  cut.reserve(static_cast<std::size_t>(n) * new_row);
  for (Index i = 0; i < n; ++i) {
    const auto row = rows.subspan(static_cast<std::size_t>(i) * old_row, new_row);
    cut.insert(cut.end(), row.begin(), row.end());
  }
  out.write(offset, size, cut.data());
}

void require_going_on(const std::stop_token& stop, const TraceLayout& to) {
  if (stop.stop_requested()) throw Interrupted("{}: the copy was stopped", to.file.name());
}

/// Copies one array; returns its checksum table [n_calls, heads]. Throws FormatError at the first
/// damaged piece.
std::vector<std::uint64_t> copy_array(const TraceLayout& from, TraceLayout& to, std::size_t array,
                                      const std::stop_token& stop) {
  const auto& spec = to.arrays[array];
  const Index n_calls = static_cast<Index>(to.info.calls.size());
  const Index n_heads = spec.n_heads();
  std::vector<std::uint64_t> table(static_cast<std::size_t>(n_calls * n_heads));
  for (Index head = 0; head < n_heads; ++head) {
    for (Index call = 0; call < n_calls; ++call) {
      require_going_on(stop, to);
      const std::string problem = check_piece(
          from, array, call, head, [&](Index first, Index n, std::span<const std::byte> rows) {
            copy_block(from.arrays[array], spec, to.data(array), head, first, n, rows);
          });
      if (!problem.empty()) throw FormatError("{}: {}", from.file.name(), problem);
      table[static_cast<std::size_t>(call * n_heads + head)] =
          recorded_checksum(from, array, call, head);
    }
  }
  h5::Dataset& checksums = to.checksums(array);
  checksums.write(h5::Dims(checksums.dims().size(), 0), checksums.dims(), table.data());
  return table;
}

std::vector<std::uint64_t> copy_text(const TraceLayout& from, TraceLayout& to) {
  std::vector<std::uint64_t> table;
  if (!to.token_bytes) return table;
  for (Index call = 0; call < static_cast<Index>(to.info.calls.size()); ++call) {
    const std::string problem = check_text(from, call);
    if (!problem.empty()) throw FormatError("{}: {}", from.file.name(), problem);
    from.text_checksums->read({call}, {1}, &table.emplace_back());
  }
  const h5::Dims n_offsets = to.token_offsets->dims();
  std::vector<std::int64_t> index(static_cast<std::size_t>(n_offsets[0]));
  from.token_offsets->read({0}, n_offsets, index.data());
  to.token_offsets->write({0}, n_offsets, index.data());
  const h5::Dims n_bytes = to.token_bytes->dims();
  std::vector<std::uint8_t> text(static_cast<std::size_t>(n_bytes[0]));
  from.token_bytes->read({0}, n_bytes, text.data());
  to.token_bytes->write({0}, n_bytes, text.data());
  to.text_checksums->write({0}, to.text_checksums->dims(), table.data());
  return table;
}

/// The header of the copy: shapes cut to the copied calls, the token text to its true length.
TraceInfo describe_copy(const TraceLayout& from, Index n_calls, TraceStatus status) {
  TraceInfo info = cut_to_calls(from.info, n_calls);
  info.status = status;
  info.uuid.clear();
  info.content_hash.clear();
  if (from.token_offsets) {
    std::int64_t n_bytes = 0;
    from.token_offsets->read({info.n_tokens}, {1}, &n_bytes);
    info.token_text_capacity = std::clamp<std::int64_t>(n_bytes, 1, from.token_bytes->dims()[0]);
  }
  return info;
}

/// Reads the closed copy back, every piece against its checksum: what is not whole gets no name.
void check_copy(const std::filesystem::path& file, const CopyReport& report,
                const std::stop_token& stop) {
  const TraceLayout layout = open_layout(h5::File::open(file));
  std::string problem;
  if (layout.n_committed() != report.n_calls || layout.info.content_hash != report.content_hash) {
    problem = "its header is not what was written";
  }
  for (Index call = 0; problem.empty() && call < report.n_calls; ++call) {
    require_going_on(stop, layout);
    problem = check_call(layout, call);
  }
  if (problem.empty()) return;
  throw IoError("{}: what was written cannot be read back: {}", file.string(), problem);
}

}  // namespace

UnnamedCopy copy_unnamed(const std::filesystem::path& from_path, const std::filesystem::path& out,
                         const CopyOptions& options, const ProgressFn& progress) {
  NewFile pending(out, options.overwrite, FileKind::trace);
  const TraceLayout from = open_layout(h5::File::open(from_path));
  if (!from.has_checksums()) {
    throw FormatError("{}: has no checksums, so its data cannot be copied safely",
                      from_path.string());
  }
  const Index n_calls =
      std::min(from.n_committed(), options.max_calls.value_or(from.n_committed()));
  if (n_calls == 0) throw FormatError("{}: no call was recorded to its end", from_path.string());

  CopyReport report;
  {
    TraceLayout to = create_layout(
        pending.temporary(), describe_copy(from, n_calls, options.status), options.gzip_level);
    std::vector<std::vector<std::uint64_t>> tables;
    for (std::size_t array = 0; array < to.arrays.size(); ++array) {
      tables.push_back(copy_array(from, to, array, options.stop));
      if (progress) {
        progress({"copy", static_cast<Index>(array) + 1, static_cast<Index>(to.arrays.size()),
                  "arrays"});
      }
    }
    const auto text_table = copy_text(from, to);
    const auto tokens =
        to.arrays.empty() ? std::vector<std::int32_t>{} : to.data(0).read_all<std::int32_t>();
    to.progress->write({0}, {1}, &n_calls);
    to.info.content_hash = hash_contents(to.info, tokens, tables, text_table);
    to.info.uuid = derive_uuid(to.info);
    seal_header(to.file, to.info);
    report = {n_calls, to.info.n_tokens, to.info.content_hash};
    to.data_list.clear();
    to.checksum_list.clear();
    to.file.close();
  }
  check_copy(pending.temporary(), report, options.stop);
  return {std::move(report), std::move(pending)};
}

CopyReport copy_trace(const std::filesystem::path& from, const std::filesystem::path& out,
                      const CopyOptions& options, const ProgressFn& progress) {
  UnnamedCopy copy = copy_unnamed(from, out, options, progress);
  copy.file.publish();
  return copy.report;
}

}  // namespace kvscope

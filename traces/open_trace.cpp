#include "traces/open_trace.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "traces/encode.hpp"
#include "traces/first_look.hpp"
#include "traces/raw_file.hpp"

namespace kvscope {

namespace {

/// Opens what `file` holds; a partial file is cut to its committed calls.
void require_ended(const TraceLayout& layout, bool is_partial, const OpenOptions& options) {
  if (is_partial && !options.allow_partial) {
    throw FormatError(
        "{}: this recording did not end; 'kvscope recover {}' makes a trace of its {} whole calls",
        layout.file.name(), layout.file.name(), layout.n_committed());
  }
  const Index n_calls = static_cast<Index>(layout.info.calls.size());
  if (!is_partial && layout.n_committed() != n_calls) {
    throw FormatError("{}: status '{}', but it has only {} of {} calls", layout.file.name(),
                      name_of(layout.info.status), layout.n_committed(), n_calls);
  }
}

std::unique_ptr<OpenTrace> build(h5::File file, bool is_growing_name, const OpenOptions& options,
                                 CheckArrays check) {
  auto trace = std::make_unique<OpenTrace>();
  trace->where = file.name();
  trace->file_bytes = static_cast<std::int64_t>(file.size_bytes());
  trace->layout = open_layout(std::move(file), check);
  const bool is_partial = is_growing_name || trace->layout.info.status == TraceStatus::recording;
  require_ended(trace->layout, is_partial, options);
  trace->info = trace->layout.info;
  if (is_partial) {
    trace->info = cut_to_calls(trace->layout.info, trace->layout.n_committed());
    trace->info.status = TraceStatus::recording;
  }
  trace->tokens.resize(static_cast<std::size_t>(trace->info.n_tokens));
  trace->layout.data(0).check_fits_memory();
  trace->layout.data(0).read({0}, {trace->info.n_tokens}, trace->tokens.data());
  if (options.check_data && trace->layout.has_checksums()) {
    trace->guard = std::make_unique<PieceGuard>(
        trace->layout, static_cast<Index>(trace->info.calls.size()), /*is_sealed=*/!is_partial);
    trace->guard->check_opening(trace->layout, trace->tokens);
  }
  for (std::size_t i = 0; i < trace->layout.arrays.size(); ++i)
    trace->by_path[trace->layout.arrays[i].path] = i;
  return trace;
}

}  // namespace

std::unique_ptr<OpenTrace> OpenTrace::open(const std::filesystem::path& path, OpenOptions options) {
  if (path.extension() == ".kvset")
    throw FormatError(
        "{}: trace sets are no longer read: expected a trace (.h5); each file of the set is one "
        "and opens by itself",
        path.string());
  constexpr unsigned kPartial = 1, kCheck = 2;
  const FirstLook look(
      path,
      [](const std::filesystem::path& file, unsigned flags) {
        const OpenOptions same = {(flags & kPartial) != 0, (flags & kCheck) != 0};
        build(h5::File::open(file), is_part_path(file), same, CheckArrays::all);
      },
      (options.allow_partial ? kPartial : 0) | (options.check_data ? kCheck : 0));
  return build(h5::File::open(path), is_part_path(path), options,
               look.is_good() ? CheckArrays::when_used : CheckArrays::all);
}

std::unique_ptr<OpenTrace> OpenTrace::open_image(std::span<const std::byte> bytes,
                                                 const std::string& name, OpenOptions options) {
  return build(h5::File::open_image(bytes, name), is_part_path(name), options, CheckArrays::all);
}

std::size_t OpenTrace::array_at(const std::string& path, const char* capture) const {
  const auto found = by_path.find(path);
  if (found == by_path.end())
    throw ConfigError("{}: {} was not recorded (capture '{}')", where, path, capture);
  return found->second;
}

std::size_t OpenTrace::layer_array(Index layer, const char* name, const char* capture) const {
  info.layer_slot(layer);
  return array_at(schema::layer_path(layer, name), capture);
}

TokenRange OpenTrace::locate(std::size_t array, TokenRange range) const {
  const bool by_row = spec(array).along == schema::Along::rows;
  const TokenRange kept = by_row ? info.rows : TokenRange{0, info.n_tokens};
  if (range.begin < kept.begin || range.end > kept.end || range.begin > range.end) {
    throw ConfigError("{}: {}: positions {} to {} are not in the recorded range {} to {}", where,
                      spec(array).path, range.begin, range.end, kept.begin, kept.end);
  }
  const Index shift = by_row ? kept.begin : 0;
  return {range.begin - shift, range.end - shift};
}

/// Stored rows of one head at positions [range) of the growing axis, block by block; whoever
/// returns from it has read what was recorded.
void OpenTrace::read_blocks(std::size_t array, Index head, TokenRange range,
                            const BlockFn& visit) const {
  GuardedRead guarded(guard.get(), layout, tokens, array, head, range);
  for_each_block(spec(array), layout.data(array), head, range,
                 [&](Index first, Index n, std::span<const std::byte> bytes) {
                   visit(first, n, bytes);
                   guarded.add(first, n, bytes);
                 });
  guarded.finish();
}

void OpenTrace::read_stored(std::size_t array, Index head, TokenRange range, void* out) const {
  auto* next = static_cast<std::byte*>(out);
  read_blocks(array, head, range, [&](Index, Index, std::span<const std::byte> bytes) {
    next = std::copy(bytes.begin(), bytes.end(), next);
  });
}

void OpenTrace::read_floats(std::size_t array, Index head, TokenRange range, float* out) const {
  const auto& row = spec(array);
  const DType dtype = h5::dtype_of(row.type).value();
  const std::size_t row_size = static_cast<std::size_t>(row.row_size());
  float* next = out;
  read_blocks(array, head, range, [&](Index first, Index n, std::span<const std::byte> bytes) {
    const std::size_t count = static_cast<std::size_t>(n) * row_size;
    to_float(dtype, bytes.data(), next, count);
    require_finite(fmt::format("{}: {}: head slot {}", where, row.path, head), first,
                   row.row_size(), {next, count});
    next += count;
  });
}

Tensor<float> OpenTrace::read_rows(std::size_t array, Index head, TokenRange positions) const {
  const auto& row = spec(array);
  const bool scalar = row.dims.size() == row.growing_axis() + 1;
  auto out = Tensor<float>::uninitialized(scalar ? Shape{positions.size()}
                                                 : Shape{positions.size(), row.row_size()});
  read_floats(array, head, positions, out.data());
  return out;
}

bool OpenTrace::is_chunked() const {
  if (const int known = is_chunked_known.load(); known >= 0) return known != 0;
  bool found = false;
  for (std::size_t i = 0; !found && i < layout.arrays.size(); ++i) {
    const h5::Dataset data = layout.data_list.open(layout.file, i);
    found = h5::count(data.dims()) > 0 && !data.file_offset();
  }
  is_chunked_known.store(found ? 1 : 0);
  return found;
}

std::vector<std::string> OpenTrace::token_bytes() const {
  std::vector<std::string> texts;
  if (!layout.token_bytes) return texts;
  const Index n = info.n_tokens;
  std::vector<std::int64_t> index(static_cast<std::size_t>(n) + 1);
  layout.token_offsets->read({0}, {n + 1}, index.data());
  const Index capacity = layout.token_bytes->dims()[0];
  std::vector<char> text(static_cast<std::size_t>(capacity));
  layout.token_bytes->read({0}, {capacity}, text.data());
  for (std::size_t i = 0; i + 1 < index.size(); ++i) {
    if (index[i] < 0 || index[i] > index[i + 1] || index[i + 1] > capacity) {
      throw FormatError("{}: token {}: bytes {} to {} are not inside the text of {} bytes",
                        layout.token_offsets->where(), i, index[i], index[i + 1], capacity);
    }
    texts.emplace_back(text.data() + index[i], static_cast<std::size_t>(index[i + 1] - index[i]));
  }
  if (guard) guard->check_text(layout, index, text);
  return texts;
}

}  // namespace kvscope

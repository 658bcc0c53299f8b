#include "traces/reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/base/error.hpp"
#include "traces/encode.hpp"
#include "traces/first_look.hpp"
#include "traces/layout.hpp"
#include "traces/piece_guard.hpp"
#include "traces/pieces.hpp"
#include "traces/raw_file.hpp"

namespace kvscope {

namespace {

void require_ended(const TraceLayout& layout, bool is_partial, const OpenOptions& options) {
  if (is_partial && !options.allow_partial) {
    throw FormatError(
        "{}: this recording did not end; 'kvscope recover {}' makes a trace of its {} whole calls",
        layout.file.name(), layout.file.name(), layout.n_committed());
  }
  const Index n_calls = static_cast<Index>(layout.info.calls.size());
  if (!is_partial && layout.n_committed() != n_calls) {
    throw FormatError("{}: status '{}', but it has only {} of {} calls", layout.file.name(),
                      enum_name(layout.info.status), layout.n_committed(), n_calls);
  }
}

}  // namespace

/// Arrays are named by their paths, heads by their slots; every piece that is read is compared with
/// its checksum.
struct TraceFile::State {
  TraceLayout layout;
  TraceInfo info;  // cut to what was committed
  std::string where;
  std::int64_t file_bytes = 0;
  std::vector<TokenId> tokens;  // of all calls of this file
  std::map<std::string, std::size_t> by_path;
  // None where there are no checksums, or somebody else compares them.
  std::unique_ptr<PieceGuard> guard;

  /// A partial file is cut to its committed calls.
  State(h5::File file, bool is_growing_name, const OpenOptions& options, CheckArrays check)
      : layout(open_layout(std::move(file), check)),
        info(layout.info),
        where(layout.file.name()),
        file_bytes(static_cast<std::int64_t>(layout.file.size_bytes())) {
    const bool is_partial = is_growing_name || info.status == TraceStatus::recording;
    require_ended(layout, is_partial, options);
    if (is_partial) {
      info = cut_to_calls(layout.info, layout.n_committed());
      info.status = TraceStatus::recording;
    }
    tokens.resize(static_cast<std::size_t>(info.n_tokens));
    layout.data(0).check_fits_memory();
    layout.data(0).read({0}, {info.n_tokens}, tokens.data());
    if (options.check_data && layout.has_checksums()) {
      guard = std::make_unique<PieceGuard>(layout, static_cast<Index>(info.calls.size()),
                                           /*is_sealed=*/!is_partial);
      guard->check_opening(layout, tokens);
    }
    for (std::size_t i = 0; i < layout.arrays.size(); ++i) by_path[layout.arrays[i].path] = i;
  }

  const schema::ArraySpec& spec(std::size_t array) const { return layout.arrays[array]; }
  /// The array `path`, or a ConfigError that says what to record.
  std::size_t array_at(const std::string& path, const char* capture) const {
    const auto found = by_path.find(path);
    if (found == by_path.end())
      throw ConfigError("{}: {} was not recorded (capture '{}')", where, path, capture);
    return found->second;
  }
  std::size_t layer_array(Index layer, std::string_view name, const char* capture) const {
    info.layer_slot(layer);
    return array_at(schema::layer_path(layer, std::string(name)), capture);
  }
  /// Positions on the growing axis for token positions `range`. Throws ConfigError if they are not
  /// recorded.
  TokenRange locate(std::size_t array, TokenRange range) const {
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
  void read_blocks(std::size_t array, Index head, TokenRange range, const BlockFn& visit) const {
    GuardedRead guarded(guard.get(), layout, tokens, array, head, range);
    for_each_block(spec(array), layout.data(array), head, range,
                   [&](Index first, Index n, std::span<const std::byte> bytes) {
                     visit(first, n, bytes);
                     guarded.add(first, n, bytes);
                   });
    guarded.finish();
  }
  /// Positions [range) of one head, as they are stored, into `out`.
  void read_stored(std::size_t array, Index head, TokenRange range, void* out) const {
    auto* next = static_cast<std::byte*>(out);
    read_blocks(array, head, range, [&](Index, Index, std::span<const std::byte> bytes) {
      next = std::copy(bytes.begin(), bytes.end(), next);
    });
  }
  /// The same widened: [n, row] or, for arrays of one number per position, [n].
  Tensor<float> read_rows(std::size_t array, Index head, TokenRange positions) const {
    const auto& row = spec(array);
    const bool scalar = row.dims.size() == row.growing_axis() + 1;
    auto out = Tensor<float>::uninitialized(scalar ? Shape{positions.size()}
                                                   : Shape{positions.size(), row.row_size()});
    const DType dtype = h5::dtype_of(row.type).value();
    const std::size_t row_size = static_cast<std::size_t>(row.row_size());
    float* next = out.data();
    read_blocks(array, head, positions,
                [&](Index first, Index n, std::span<const std::byte> bytes) {
                  const std::size_t count = static_cast<std::size_t>(n) * row_size;
                  to_float(dtype, bytes.data(), next, count);
                  require_finite(fmt::format("{}: {}: head slot {}", where, row.path, head), first,
                                 row.row_size(), {next, count});
                  next += count;
                });
    return out;
  }
};

TraceFile::TraceFile(std::unique_ptr<State> trace) : trace_(std::move(trace)) {}
TraceFile::TraceFile(TraceFile&&) noexcept = default;
TraceFile& TraceFile::operator=(TraceFile&&) noexcept = default;
TraceFile::~TraceFile() = default;

TraceFile TraceFile::open(const std::filesystem::path& path, OpenOptions options) {
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
        (void)State(h5::File::open(file), is_part_path(file), same, CheckArrays::all);
      },
      (options.allow_partial ? kPartial : 0) | (options.check_data ? kCheck : 0));
  return TraceFile(
      std::make_unique<State>(h5::File::open(path), is_part_path(path), options,
                              look.is_good() ? CheckArrays::when_used : CheckArrays::all));
}

TraceFile TraceFile::open_image(std::span<const std::byte> bytes, const std::string& name,
                                OpenOptions options) {
  return TraceFile(std::make_unique<State>(h5::File::open_image(bytes, name), is_part_path(name),
                                           options, CheckArrays::all));
}

const TraceInfo& TraceFile::info() const {
  return trace_->info;
}
const TraceInfo& TraceFile::planned() const {
  return trace_->layout.info;
}
std::string TraceFile::where() const {
  return trace_->where;
}
std::span<const TokenId> TraceFile::tokens() const {
  return trace_->tokens;
}
std::vector<std::string> TraceFile::warnings() const {
  return trace_->layout.warnings;
}
std::int64_t TraceFile::file_bytes() const {
  return trace_->file_bytes;
}
std::vector<std::string> TraceFile::token_bytes() const {
  const TraceLayout& layout = trace_->layout;
  std::vector<std::string> texts;
  if (!layout.token_bytes) return texts;
  const Index n = trace_->info.n_tokens;
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
  if (trace_->guard) trace_->guard->check_text(layout, index, text);
  return texts;
}

Tensor<float> TraceFile::read(TraceTensor what, Index layer, Index head, TokenRange range) const {
  const std::size_t array =
      trace_->layer_array(layer, enum_name(what), what == TraceTensor::lse ? "lse" : "qkv");
  const TraceInfo& info = trace_->info;
  return trace_->read_rows(array,
                           is_of_queries(what) ? info.q_slot(head) : info.kv_slot(layer, head),
                           trace_->locate(array, range));
}

Tensor<float> TraceFile::read_side(SideTensor what, Index layer, Index head,
                                   TokenRange range) const {
  require_side(*this, what, layer, head);
  const std::size_t array = trace_->layer_array(layer, enum_name(what), "index");
  const Index slot = what == SideTensor::k_pre_rope ? trace_->info.kv_slot(layer, head) : head;
  return trace_->read_rows(array, slot, trace_->locate(array, range));
}

Tensor<std::int32_t> TraceFile::read_selected(Index layer, Index list, TokenRange range) const {
  require_selected(*this, layer, list);
  const std::size_t array = trace_->layer_array(layer, "index_selected", "index");
  const TokenRange positions = trace_->locate(array, range);
  const IndexShape& index = trace_->info.index;
  auto out = Tensor<std::int32_t>::uninitialized({positions.size(), index.n_selected});
  trace_->read_stored(array, list, positions, out.data());
  for (Index i = 0; i < positions.size(); ++i) {
    Index before = -1;
    bool has_ended = false;
    for (const std::int32_t block : out.view().row(i)) {
      const bool is_pad = block == -1;
      if (!is_pad && (has_ended || block <= before || block > (range.begin + i) / index.block)) {
        throw FormatError(
            "{}: {}: list {}, row {} names block {} after {}: expected rising blocks that begin at "
            "or before the row, and -1 behind them",
            trace_->where, trace_->spec(array).path, list, range.begin + i, block, before);
      }
      has_ended = has_ended || is_pad;
      if (!is_pad) before = block;
    }
  }
  return out;
}

Tensor<float> TraceFile::read_attn(Index layer, Index q_head, TokenRange range) const {
  const std::size_t array = trace_->layer_array(layer, "attn", "attn");
  Tensor<float> rows =
      trace_->read_rows(array, trace_->info.q_slot(q_head), trace_->locate(array, range));
  const Index n_tokens = trace_->info.n_tokens;
  if (rows.dim(1) == n_tokens) return rows;
  // A partial file has the width of the planned run.
  auto cut = Tensor<float>::uninitialized({rows.dim(0), n_tokens});
  for (Index i = 0; i < rows.dim(0); ++i) {
    std::copy_n(rows.view().row(i).data(), n_tokens, cut.view().row(i).data());
  }
  return cut;
}

TopkRows TraceFile::read_topk(Index layer, Index q_head, TokenRange range) const {
  const std::size_t pos_array = trace_->layer_array(layer, "topk_pos", "attn-topk=N");
  const std::size_t prob_array = trace_->layer_array(layer, "topk_prob", "attn-topk=N");
  const Index slot = trace_->info.q_slot(q_head);
  const TokenRange positions = trace_->locate(pos_array, range);
  const Index n = trace_->info.capture.attn_topk;
  TopkRows out{Tensor<std::int32_t>::uninitialized({positions.size(), n}),
               trace_->read_rows(prob_array, slot, positions)};
  trace_->read_stored(pos_array, slot, positions, out.pos.data());
  for (Index i = 0; i < positions.size(); ++i) {
    for (const std::int32_t pos : out.pos.view().row(i)) {
      if (pos >= -1 && pos <= range.begin + i) continue;
      throw FormatError("{}: {}: row {} names key {}, which it cannot see", trace_->where,
                        trace_->spec(pos_array).path, range.begin + i, pos);
    }
  }
  return out;
}

Tensor<float> TraceFile::read_logits(TokenRange range) const {
  const std::size_t array = trace_->array_at("/logits", "logits");
  return trace_->read_rows(array, 0, trace_->locate(array, range));
}

RoutedRows TraceFile::read_routing(Index layer, TokenRange range) const {
  const TraceInfo& info = trace_->info;
  const std::size_t experts = trace_->layer_array(layer, "experts", "routing");
  const std::size_t weights = trace_->layer_array(layer, "expert_weights", "routing");
  const TokenRange positions = trace_->locate(experts, range);
  const Index n = info.n_experts_per_token;
  RoutedRows out{Tensor<std::int32_t>::uninitialized({positions.size(), n}),
                 trace_->read_rows(weights, 0, positions)};
  trace_->read_stored(experts, 0, positions, out.expert.data());
  const Index n_experts = info.layer_kinds[static_cast<std::size_t>(layer)].n_experts;
  for (Index i = 0; i < positions.size(); ++i) {
    for (const std::int32_t expert : out.expert.view().row(i)) {
      if (expert >= 0 && expert < n_experts) continue;
      throw FormatError("{}: {}: row {} names expert {}, expected 0 to {}", trace_->where,
                        trace_->spec(experts).path, range.begin + i, expert, n_experts - 1);
    }
  }
  return out;
}

Tensor<float> TraceFile::read_stat(std::string_view name, Index layer, Index head,
                                   TokenRange range) const {
  const std::size_t array = trace_->layer_array(layer, fmt::format("stats/{}", name), "stats");
  const TraceInfo& info = trace_->info;
  const Index slot = name == "q_norm" ? info.q_slot(head) : info.kv_slot(layer, head);
  const bool is_of_pages = name.starts_with("page_");
  return trace_->read_rows(
      array, slot, is_of_pages ? TokenRange{0, info.n_full_pages()} : trace_->locate(array, range));
}

}  // namespace kvscope

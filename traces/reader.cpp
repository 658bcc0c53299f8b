#include "traces/reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <utility>

#include "core/base/error.hpp"
#include "traces/encode.hpp"
#include "traces/first_look.hpp"
#include "traces/layout.hpp"
#include "traces/piece_guard.hpp"
#include "traces/pieces.hpp"
#include "traces/raw_file.hpp"

namespace kvscope {

struct TraceFile::Impl {
  TraceLayout layout;
  TraceInfo info;  // cut to what was committed
  std::string where;
  std::int64_t file_bytes = 0;
  std::vector<TokenId> tokens;
  std::map<std::string, std::size_t> by_path;
  std::atomic<int> is_chunked{-1};  // -1: nobody has asked yet; panels ask in every frame
  std::unique_ptr<PieceGuard>
      guard;  // none where there are no checksums, or somebody else compares them

  const schema::ArraySpec& spec(std::size_t array) const { return layout.arrays[array]; }

  /// The array `path`, or a ConfigError that says what to record.
  std::size_t array_at(const std::string& path, const char* capture) const {
    const auto found = by_path.find(path);
    if (found == by_path.end()) {
      throw ConfigError(
          fmt::format("{}: {} was not recorded (capture '{}')", where, path, capture));
    }
    return found->second;
  }

  std::size_t layer_array(Index layer, const char* name, const char* capture) const {
    info.layer_slot(layer);
    return array_at(schema::layer_path(layer, name), capture);
  }

  /// Positions on the growing axis for token positions `range`. Throws ConfigError if they are not
  /// recorded.
  TokenRange locate(std::size_t array, TokenRange range) const {
    const bool by_row = spec(array).along == schema::Along::rows;
    const TokenRange kept = by_row ? info.rows : TokenRange{0, info.n_tokens};
    if (range.begin < kept.begin || range.end > kept.end || range.begin > range.end) {
      throw ConfigError(
          fmt::format("{}: {}: positions {} to {} are not in the recorded range {} to {}", where,
                      spec(array).path, range.begin, range.end, kept.begin, kept.end));
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

  /// The same as they are stored, into `out`.
  void read_stored(std::size_t array, Index head, TokenRange range, void* out) const {
    auto* next = static_cast<std::byte*>(out);
    read_blocks(array, head, range, [&](Index, Index, std::span<const std::byte> bytes) {
      next = std::copy(bytes.begin(), bytes.end(), next);
    });
  }

  /// The same widened into `out`.
  void read_floats(std::size_t array, Index head, TokenRange range, float* out) const {
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

  /// [n, row] or, for arrays of one number per position, [n].
  Tensor<float> read_rows(std::size_t array, Index head, TokenRange positions) const {
    const auto& row = spec(array);
    const bool scalar = row.dims.size() == row.growing_axis() + 1;
    auto out = Tensor<float>::uninitialized(scalar ? Shape{positions.size()}
                                                   : Shape{positions.size(), row.row_size()});
    read_floats(array, head, positions, out.data());
    return out;
  }
};

namespace {

/// Opens what `file` holds; a partial file is cut to its committed units.
void require_ended(const TraceLayout& layout, bool is_partial, const OpenOptions& options) {
  if (is_partial && !options.allow_partial) {
    throw FormatError(fmt::format(
        "{}: this recording did not end; 'kvscope recover {}' makes a trace of its {} whole units",
        layout.file.name(), layout.file.name(), layout.n_committed()));
  }
  const Index n_units = static_cast<Index>(layout.info.units.size());
  if (!is_partial && layout.n_committed() != n_units) {
    throw FormatError(fmt::format("{}: status '{}', but only {} of {} units are there",
                                  layout.file.name(), name_of(layout.info.status),
                                  layout.n_committed(), n_units));
  }
}

}  // namespace

TraceFile::TraceFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TraceFile::TraceFile(TraceFile&&) noexcept = default;
TraceFile& TraceFile::operator=(TraceFile&&) noexcept = default;
TraceFile::~TraceFile() = default;

namespace {

template <class Impl>
std::unique_ptr<Impl> build(h5::File file, bool is_part_name, const OpenOptions& options,
                            CheckArrays check) {
  auto impl = std::make_unique<Impl>();
  impl->where = file.name();
  impl->file_bytes = static_cast<std::int64_t>(file.size_bytes());
  impl->layout = open_layout(std::move(file), check);
  const bool is_partial = is_part_name || impl->layout.info.status == TraceStatus::recording;
  require_ended(impl->layout, is_partial, options);
  impl->info = impl->layout.info;
  if (is_partial) {
    impl->info = cut_to_units(impl->layout.info, impl->layout.n_committed());
    impl->info.status = TraceStatus::recording;
  }
  impl->tokens.resize(static_cast<std::size_t>(impl->info.n_tokens));
  impl->layout.data(0).check_fits_memory();
  impl->layout.data(0).read({0}, {impl->info.n_tokens}, impl->tokens.data());
  if (options.check_data && impl->layout.has_checksums()) {
    impl->guard = std::make_unique<PieceGuard>(
        impl->layout, static_cast<Index>(impl->info.units.size()), /*is_sealed=*/!is_partial);
    impl->guard->check_opening(impl->layout, impl->tokens);
  }
  for (std::size_t i = 0; i < impl->layout.arrays.size(); ++i)
    impl->by_path[impl->layout.arrays[i].path] = i;
  return impl;
}

}  // namespace

TraceFile TraceFile::open(const std::filesystem::path& path, OpenOptions options) {
  constexpr unsigned kPartial = 1, kCheck = 2;
  const FirstLook look(
      path,
      [](const std::filesystem::path& file, unsigned flags) {
        const OpenOptions same = {(flags & kPartial) != 0, (flags & kCheck) != 0};
        build<Impl>(h5::File::open(file), is_part_path(file), same, CheckArrays::all);
      },
      (options.allow_partial ? kPartial : 0) | (options.check_data ? kCheck : 0));
  return TraceFile(build<Impl>(h5::File::open(path), is_part_path(path), options,
                               look.is_good() ? CheckArrays::when_used : CheckArrays::all));
}

TraceFile TraceFile::open_image(std::span<const std::byte> bytes, const std::string& name,
                                OpenOptions options) {
  return TraceFile(build<Impl>(h5::File::open_image(bytes, name), is_part_path(name), options,
                               CheckArrays::all));
}

const TraceInfo& TraceFile::info() const {
  return impl_->info;
}
const TraceInfo& TraceFile::planned() const {
  return impl_->layout.info;
}
std::string TraceFile::where() const {
  return impl_->where;
}
std::span<const TokenId> TraceFile::tokens() const {
  return impl_->tokens;
}
std::vector<std::string> TraceFile::warnings() const {
  return impl_->layout.warnings;
}
std::int64_t TraceFile::file_bytes() const {
  return impl_->file_bytes;
}

bool TraceFile::is_chunked() const {
  if (const int known = impl_->is_chunked.load(); known >= 0) return known != 0;
  bool found = false;
  for (std::size_t i = 0; !found && i < impl_->layout.arrays.size(); ++i) {
    const h5::Dataset data = impl_->layout.data_list.open(impl_->layout.file, i);
    found = h5::count(data.dims()) > 0 && !data.file_offset();
  }
  impl_->is_chunked.store(found ? 1 : 0);
  return found;
}

std::vector<std::string> TraceFile::token_bytes() const {
  std::vector<std::string> texts;
  const TraceLayout& layout = impl_->layout;
  if (!layout.token_bytes) return texts;
  const Index n = impl_->info.n_tokens;
  std::vector<std::int64_t> index(static_cast<std::size_t>(n) + 1);
  layout.token_offsets->read({0}, {n + 1}, index.data());
  const Index capacity = layout.token_bytes->dims()[0];
  std::vector<char> text(static_cast<std::size_t>(capacity));
  layout.token_bytes->read({0}, {capacity}, text.data());
  for (std::size_t i = 0; i + 1 < index.size(); ++i) {
    if (index[i] < 0 || index[i] > index[i + 1] || index[i + 1] > capacity) {
      throw FormatError(
          fmt::format("{}: token {}: bytes {} to {} are not inside the text of {} bytes",
                      layout.token_offsets->where(), i, index[i], index[i + 1], capacity));
    }
    texts.emplace_back(text.data() + index[i], static_cast<std::size_t>(index[i + 1] - index[i]));
  }
  if (impl_->guard) impl_->guard->check_text(layout, index, text);
  return texts;
}

Tensor<float> TraceFile::read_q(Index layer, Index q_head, TokenRange range) const {
  const std::size_t array = impl_->layer_array(layer, "q", "qkv");
  return impl_->read_rows(array, impl_->info.q_slot(q_head), impl_->locate(array, range));
}

Tensor<float> TraceFile::read_k(Index layer, Index kv_head, TokenRange range) const {
  const std::size_t array = impl_->layer_array(layer, "k", "qkv");
  return impl_->read_rows(array, impl_->info.kv_slot(kv_head), impl_->locate(array, range));
}

Tensor<float> TraceFile::read_v(Index layer, Index kv_head, TokenRange range) const {
  const std::size_t array = impl_->layer_array(layer, "v", "qkv");
  return impl_->read_rows(array, impl_->info.kv_slot(kv_head), impl_->locate(array, range));
}

Tensor<float> TraceFile::read_lse(Index layer, Index q_head, TokenRange range) const {
  const std::size_t array = impl_->layer_array(layer, "lse", "lse");
  return impl_->read_rows(array, impl_->info.q_slot(q_head), impl_->locate(array, range));
}

Tensor<float> TraceFile::read_side(SideTensor what, Index layer, Index head,
                                   TokenRange range) const {
  require_side(*this, what, layer, head);
  const std::size_t array =
      impl_->layer_array(layer, std::string(enum_name(what)).c_str(), "index");
  const Index slot = what == SideTensor::k_pre_rope ? impl_->info.kv_slot(head) : head;
  return impl_->read_rows(array, slot, impl_->locate(array, range));
}

Tensor<std::int32_t> TraceFile::read_selected(Index layer, Index list, TokenRange range) const {
  require_selected(*this, layer, list);
  const std::size_t array = impl_->layer_array(layer, "index_selected", "index");
  const TokenRange positions = impl_->locate(array, range);
  const IndexShape& index = impl_->info.index;
  auto out = Tensor<std::int32_t>::uninitialized({positions.size(), index.n_selected});
  impl_->read_stored(array, list, positions, out.data());
  for (Index i = 0; i < positions.size(); ++i) {
    Index before = -1;
    bool has_ended = false;
    for (const std::int32_t block : out.view().row(i)) {
      const bool is_pad = block == -1;
      if (!is_pad && (has_ended || block <= before || block > (range.begin + i) / index.block)) {
        throw FormatError(fmt::format(
            "{}: {}: list {}, row {} names block {} after {}: expected rising blocks that begin at "
            "or before the row, and -1 behind them",
            impl_->where, impl_->spec(array).path, list, range.begin + i, block, before));
      }
      has_ended = has_ended || is_pad;
      if (!is_pad) before = block;
    }
  }
  return out;
}

Tensor<float> TraceFile::read_attn(Index layer, Index q_head, TokenRange range) const {
  const std::size_t array = impl_->layer_array(layer, "attn", "attn");
  Tensor<float> rows =
      impl_->read_rows(array, impl_->info.q_slot(q_head), impl_->locate(array, range));
  const Index n_tokens = impl_->info.n_tokens;
  if (rows.dim(1) == n_tokens) return rows;
  // A partial file has the width of the planned run.
  auto cut = Tensor<float>::uninitialized({rows.dim(0), n_tokens});
  for (Index i = 0; i < rows.dim(0); ++i) {
    std::copy_n(rows.view().row(i).data(), n_tokens, cut.view().row(i).data());
  }
  return cut;
}

TopkRows TraceFile::read_topk(Index layer, Index q_head, TokenRange range) const {
  const std::size_t pos_array = impl_->layer_array(layer, "topk_pos", "attn-topk=N");
  const std::size_t prob_array = impl_->layer_array(layer, "topk_prob", "attn-topk=N");
  const Index slot = impl_->info.q_slot(q_head);
  const TokenRange positions = impl_->locate(pos_array, range);
  const Index n = impl_->info.capture.attn_topk;
  TopkRows out{Tensor<std::int32_t>::uninitialized({positions.size(), n}),
               impl_->read_rows(prob_array, slot, positions)};
  impl_->read_stored(pos_array, slot, positions, out.pos.data());
  for (Index i = 0; i < positions.size(); ++i) {
    for (const std::int32_t pos : out.pos.view().row(i)) {
      if (pos >= -1 && pos <= range.begin + i) continue;
      throw FormatError(fmt::format("{}: {}: row {} names key {}, which it cannot see",
                                    impl_->where, impl_->spec(pos_array).path, range.begin + i,
                                    pos));
    }
  }
  return out;
}

Tensor<float> TraceFile::read_logits(TokenRange range) const {
  const std::size_t array = impl_->array_at("/logits", "logits");
  return impl_->read_rows(array, 0, impl_->locate(array, range));
}

RoutedRows TraceFile::read_routing(Index layer, TokenRange range) const {
  const TraceInfo& info = impl_->info;
  const std::size_t experts = impl_->layer_array(layer, "experts", "routing");
  const std::size_t weights = impl_->layer_array(layer, "expert_weights", "routing");
  const TokenRange positions = impl_->locate(experts, range);
  const Index n = info.n_experts_per_token;
  RoutedRows out{Tensor<std::int32_t>::uninitialized({positions.size(), n}),
                 impl_->read_rows(weights, 0, positions)};
  impl_->read_stored(experts, 0, positions, out.expert.data());
  const Index n_experts = info.layer_kinds[static_cast<std::size_t>(layer)].n_experts;
  for (Index i = 0; i < positions.size(); ++i) {
    for (const std::int32_t expert : out.expert.view().row(i)) {
      if (expert >= 0 && expert < n_experts) continue;
      throw FormatError(fmt::format("{}: {}: row {} names expert {}, expected 0 to {}",
                                    impl_->where, impl_->spec(experts).path, range.begin + i,
                                    expert, n_experts - 1));
    }
  }
  return out;
}

Tensor<float> TraceFile::read_q_norm(Index layer, Index q_head, TokenRange range) const {
  const std::size_t array = impl_->layer_array(layer, "stats/q_norm", "stats");
  return impl_->read_rows(array, impl_->info.q_slot(q_head), impl_->locate(array, range));
}

Tensor<float> TraceFile::read_k_norm(Index layer, Index kv_head, TokenRange range) const {
  const std::size_t array = impl_->layer_array(layer, "stats/k_norm", "stats");
  return impl_->read_rows(array, impl_->info.kv_slot(kv_head), impl_->locate(array, range));
}

Tensor<float> TraceFile::read_page_min(Index layer, Index kv_head) const {
  const std::size_t array = impl_->layer_array(layer, "stats/page_min", "stats");
  return impl_->read_rows(array, impl_->info.kv_slot(kv_head), {0, impl_->info.n_full_pages()});
}

Tensor<float> TraceFile::read_page_max(Index layer, Index kv_head) const {
  const std::size_t array = impl_->layer_array(layer, "stats/page_max", "stats");
  return impl_->read_rows(array, impl_->info.kv_slot(kv_head), {0, impl_->info.n_full_pages()});
}

}  // namespace kvscope

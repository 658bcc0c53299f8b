#include "traces/reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "core/base/error.hpp"
#include "traces/raw_file.hpp"
#include "traces/set_files.hpp"
#include "traces/trace_part.hpp"
#include "traces/trace_set.hpp"

namespace kvscope {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOtherRecording = "tokens, shapes or units are of another recording";

/// One file of a trace, opened when it is first needed.
struct PartSlot {
  fs::path file;
  std::mutex mutex;
  std::unique_ptr<TracePart> part;
};

/// The part whose header is taken: head_part, or where that is missing the first that is there. Of
/// parts with an indexer at least one has to be there, since the others do not say its shape.
std::size_t head_that_is_there(const fs::path& manifest, const SetManifest& set,
                               std::span<const fs::path> files) {
  const std::size_t wanted = head_part(set);
  const bool needs_index = !set.parts[wanted].index_layers.empty();
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::size_t part = (wanted + i) % files.size();
    std::error_code error;
    if (needs_index && set.parts[part].index_layers.empty()) continue;
    if (fs::is_regular_file(files[part], error)) return part;
  }
  throw IoError("{}: none of its parts{} is there: expected {} or another one next to it",
                manifest.string(), needs_index ? " with an indexer" : "", files[wanted].string());
}

}  // namespace

struct TraceFile::Impl {
  TraceInfo info;  // of all parts; cut to what was committed
  TraceInfo planned;
  std::string where;
  std::int64_t file_bytes = 0;
  OpenOptions options;
  std::optional<SetManifest> set;  // none of a single file
  std::string identity;            // of the recording, of a set that is whole
  std::size_t head = 0;            // the slot whose header was taken
  std::vector<std::unique_ptr<PartSlot>> slots;
  std::vector<std::size_t> slot_of_layer;  // by recorded layer
  std::size_t logits_slot = 0;

  static std::unique_ptr<Impl> of_part(std::unique_ptr<TracePart> part) {
    auto impl = std::make_unique<Impl>();
    impl->info = part->info;
    impl->planned = part->layout.info;
    impl->where = part->where;
    impl->file_bytes = part->file_bytes;
    impl->slot_of_layer.assign(part->info.layers.size(), 0);
    impl->slots.push_back(std::make_unique<PartSlot>());
    impl->slots.back()->part = std::move(part);
    return impl;
  }
  static std::unique_ptr<Impl> of_set(const fs::path& manifest, const OpenOptions& options);

  const TracePart& part(std::size_t slot) const {
    PartSlot& place = *slots[slot];
    const std::lock_guard lock(place.mutex);
    if (!place.part) place.part = open_part(slot);
    return *place.part;
  }
  const TracePart& head_part() const { return part(head); }
  /// The part with this layer; throws ConfigError if it was not recorded.
  const TracePart& of_layer(Index layer) const {
    return part(slot_of_layer[static_cast<std::size_t>(info.layer_slot(layer))]);
  }

 private:
  std::unique_ptr<TracePart> open_part(std::size_t slot) const;
  [[noreturn]] void fail_foreign(std::size_t slot, std::string_view what) const;
  void cut_to_common_units();
};

void TraceFile::Impl::fail_foreign(std::size_t slot, std::string_view what) const {
  throw FormatError("{}: {} is not its part with layers {}: {}", where, slots[slot]->file.string(),
                    fmt::join(set->parts[slot].layers, ","), what);
}

/// Throws FormatError if the file is not the part that the manifest means.
std::unique_ptr<TracePart> TraceFile::Impl::open_part(std::size_t slot) const {
  const SetPart& expected = set->parts[slot];
  check_part_file(where, expected, slots[slot]->file);
  auto part = TracePart::open(slots[slot]->file, options);
  const TraceInfo& header = part->layout.info;
  if (const std::string problem = part_mismatch(expected, header); !problem.empty())
    fail_foreign(slot, problem);
  if (header.content_hash != expected.content_hash && set->status != TraceStatus::recording)
    fail_foreign(slot, fmt::format("its content hash is '{}', expected '{}'", header.content_hash,
                                   expected.content_hash));
  if (!identity.empty() && recording_identity(header, part->tokens) != identity)
    fail_foreign(slot, kOtherRecording);
  return part;
}

std::unique_ptr<TraceFile::Impl> TraceFile::Impl::of_set(const fs::path& manifest,
                                                         const OpenOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->where = manifest.string();
  impl->options = options;
  impl->set = read_set_manifest(manifest);
  const bool is_partial = impl->set->status == TraceStatus::recording || is_part_path(manifest);
  if (is_partial && !options.allow_partial)
    throw FormatError(
        "{}: this recording did not end; 'kvscope recover {}' makes a trace set of its whole units",
        impl->where, impl->where);
  impl->slot_of_layer.resize(impl->set->layers().size());
  const std::vector<Index> layers = impl->set->layers();
  std::vector<fs::path> files;
  for (std::size_t i = 0; i < impl->set->parts.size(); ++i) {
    const SetPart& part = impl->set->parts[i];
    auto slot = std::make_unique<PartSlot>();
    slot->file = file_of_part(manifest, *impl->set, part);
    std::error_code error;  // while it is recorded the manifest knows no sizes
    const auto n_bytes =
        part.bytes > 0 ? std::uintmax_t(part.bytes) : fs::file_size(slot->file, error);
    if (!error) impl->file_bytes += static_cast<std::int64_t>(n_bytes);
    files.push_back(slot->file);
    impl->slots.push_back(std::move(slot));
    for (const Index layer : part.layers) {
      const auto at = std::ranges::lower_bound(layers, layer) - layers.begin();
      impl->slot_of_layer[static_cast<std::size_t>(at)] = i;
    }
    if (part.has_logits) impl->logits_slot = i;
  }
  impl->head = head_that_is_there(manifest, *impl->set, files);
  const TracePart& head = impl->part(impl->head);
  if (!layers.empty() && layers.back() >= head.info.n_layers)
    throw FormatError("{}: names layer {}, but the model of its part {} has {} layers", impl->where,
                      layers.back(), head.where, head.info.n_layers);
  if (!is_partial) impl->identity = recording_identity(head.layout.info, head.tokens);
  impl->info = info_of_set(*impl->set, head.info);
  impl->planned = info_of_set(*impl->set, head.layout.info);
  if (is_partial) impl->cut_to_common_units();
  return impl;
}

/// While parts are recorded, a unit is whole when all of them have it. A part that has its name
/// already may be shorter than the plan, so what makes parts those of one recording is compared of
/// the common units.
void TraceFile::Impl::cut_to_common_units() {
  std::size_t n_units = info.units.size();
  for (std::size_t i = 0; i < slots.size(); ++i)
    n_units = std::min(n_units, part(i).info.units.size());
  const auto cut = [&](TraceInfo& whole) {
    whole = cut_to_units(whole, static_cast<Index>(n_units));
  };
  cut(info);
  info.status = TraceStatus::recording;
  std::string common;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    TracePart& part = *slots[i]->part;
    cut(part.info);
    const std::string own = recording_identity(
        part.info, std::span(part.tokens).first(static_cast<std::size_t>(part.info.n_tokens)));
    if (common.empty()) common = own;
    if (own != common) fail_foreign(i, kOtherRecording);
  }
}

TraceFile::TraceFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TraceFile::TraceFile(TraceFile&&) noexcept = default;
TraceFile& TraceFile::operator=(TraceFile&&) noexcept = default;
TraceFile::~TraceFile() = default;

TraceFile TraceFile::open(const std::filesystem::path& path, OpenOptions options) {
  if (is_set_path(path)) return TraceFile(Impl::of_set(path, options));
  return TraceFile(Impl::of_part(TracePart::open(path, options)));
}

TraceFile TraceFile::open_image(std::span<const std::byte> bytes, const std::string& name,
                                OpenOptions options) {
  return TraceFile(Impl::of_part(TracePart::open_image(bytes, name, options)));
}

const TraceInfo& TraceFile::info() const {
  return impl_->info;
}
const TraceInfo& TraceFile::planned() const {
  return impl_->planned;
}
std::string TraceFile::where() const {
  return impl_->where;
}
std::span<const TokenId> TraceFile::tokens() const {
  return std::span(impl_->head_part().tokens).first(static_cast<std::size_t>(impl_->info.n_tokens));
}
std::vector<std::string> TraceFile::warnings() const {
  return impl_->head_part().layout.warnings;
}
std::int64_t TraceFile::file_bytes() const {
  return impl_->file_bytes;
}
bool TraceFile::is_chunked() const {
  return impl_->head_part().is_chunked();
}
std::vector<std::string> TraceFile::token_bytes() const {
  std::vector<std::string> texts = impl_->head_part().token_bytes();
  if (!texts.empty()) texts.resize(static_cast<std::size_t>(impl_->info.n_tokens));
  return texts;
}

Tensor<float> TraceFile::read_q(Index layer, Index q_head, TokenRange range) const {
  const TracePart& part = impl_->of_layer(layer);
  const std::size_t array = part.layer_array(layer, "q", "qkv");
  return part.read_rows(array, part.info.q_slot(q_head), part.locate(array, range));
}

Tensor<float> TraceFile::read_k(Index layer, Index kv_head, TokenRange range) const {
  const TracePart& part = impl_->of_layer(layer);
  const std::size_t array = part.layer_array(layer, "k", "qkv");
  return part.read_rows(array, part.info.kv_slot(kv_head), part.locate(array, range));
}

Tensor<float> TraceFile::read_v(Index layer, Index kv_head, TokenRange range) const {
  const TracePart& part = impl_->of_layer(layer);
  const std::size_t array = part.layer_array(layer, "v", "qkv");
  return part.read_rows(array, part.info.kv_slot(kv_head), part.locate(array, range));
}

Tensor<float> TraceFile::read_lse(Index layer, Index q_head, TokenRange range) const {
  const TracePart& part = impl_->of_layer(layer);
  const std::size_t array = part.layer_array(layer, "lse", "lse");
  return part.read_rows(array, part.info.q_slot(q_head), part.locate(array, range));
}

Tensor<float> TraceFile::read_side(SideTensor what, Index layer, Index head,
                                   TokenRange range) const {
  require_side(*this, what, layer, head);
  const TracePart& part = impl_->of_layer(layer);
  const std::size_t array = part.layer_array(layer, std::string(enum_name(what)).c_str(), "index");
  const Index slot = what == SideTensor::k_pre_rope ? part.info.kv_slot(head) : head;
  return part.read_rows(array, slot, part.locate(array, range));
}

Tensor<std::int32_t> TraceFile::read_selected(Index layer, Index list, TokenRange range) const {
  require_selected(*this, layer, list);
  const TracePart& part = impl_->of_layer(layer);
  const std::size_t array = part.layer_array(layer, "index_selected", "index");
  const TokenRange positions = part.locate(array, range);
  const IndexShape& index = part.info.index;
  auto out = Tensor<std::int32_t>::uninitialized({positions.size(), index.n_selected});
  part.read_stored(array, list, positions, out.data());
  for (Index i = 0; i < positions.size(); ++i) {
    Index before = -1;
    bool has_ended = false;
    for (const std::int32_t block : out.view().row(i)) {
      const bool is_pad = block == -1;
      if (!is_pad && (has_ended || block <= before || block > (range.begin + i) / index.block)) {
        throw FormatError(
            "{}: {}: list {}, row {} names block {} after {}: expected rising blocks that begin at "
            "or before the row, and -1 behind them",
            part.where, part.spec(array).path, list, range.begin + i, block, before);
      }
      has_ended = has_ended || is_pad;
      if (!is_pad) before = block;
    }
  }
  return out;
}

Tensor<float> TraceFile::read_attn(Index layer, Index q_head, TokenRange range) const {
  const TracePart& part = impl_->of_layer(layer);
  const std::size_t array = part.layer_array(layer, "attn", "attn");
  Tensor<float> rows = part.read_rows(array, part.info.q_slot(q_head), part.locate(array, range));
  const Index n_tokens = part.info.n_tokens;
  if (rows.dim(1) == n_tokens) return rows;
  // A partial file has the width of the planned run.
  auto cut = Tensor<float>::uninitialized({rows.dim(0), n_tokens});
  for (Index i = 0; i < rows.dim(0); ++i) {
    std::copy_n(rows.view().row(i).data(), n_tokens, cut.view().row(i).data());
  }
  return cut;
}

TopkRows TraceFile::read_topk(Index layer, Index q_head, TokenRange range) const {
  const TracePart& part = impl_->of_layer(layer);
  const std::size_t pos_array = part.layer_array(layer, "topk_pos", "attn-topk=N");
  const std::size_t prob_array = part.layer_array(layer, "topk_prob", "attn-topk=N");
  const Index slot = part.info.q_slot(q_head);
  const TokenRange positions = part.locate(pos_array, range);
  const Index n = part.info.capture.attn_topk;
  TopkRows out{Tensor<std::int32_t>::uninitialized({positions.size(), n}),
               part.read_rows(prob_array, slot, positions)};
  part.read_stored(pos_array, slot, positions, out.pos.data());
  for (Index i = 0; i < positions.size(); ++i) {
    for (const std::int32_t pos : out.pos.view().row(i)) {
      if (pos >= -1 && pos <= range.begin + i) continue;
      throw FormatError("{}: {}: row {} names key {}, which it cannot see", part.where,
                        part.spec(pos_array).path, range.begin + i, pos);
    }
  }
  return out;
}

Tensor<float> TraceFile::read_logits(TokenRange range) const {
  const TracePart& part = impl_->part(impl_->logits_slot);
  const std::size_t array = part.array_at("/logits", "logits");
  return part.read_rows(array, 0, part.locate(array, range));
}

RoutedRows TraceFile::read_routing(Index layer, TokenRange range) const {
  const TracePart& part = impl_->of_layer(layer);
  const TraceInfo& info = part.info;
  const std::size_t experts = part.layer_array(layer, "experts", "routing");
  const std::size_t weights = part.layer_array(layer, "expert_weights", "routing");
  const TokenRange positions = part.locate(experts, range);
  const Index n = info.n_experts_per_token;
  RoutedRows out{Tensor<std::int32_t>::uninitialized({positions.size(), n}),
                 part.read_rows(weights, 0, positions)};
  part.read_stored(experts, 0, positions, out.expert.data());
  const Index n_experts = info.layer_kinds[static_cast<std::size_t>(layer)].n_experts;
  for (Index i = 0; i < positions.size(); ++i) {
    for (const std::int32_t expert : out.expert.view().row(i)) {
      if (expert >= 0 && expert < n_experts) continue;
      throw FormatError("{}: {}: row {} names expert {}, expected 0 to {}", part.where,
                        part.spec(experts).path, range.begin + i, expert, n_experts - 1);
    }
  }
  return out;
}

Tensor<float> TraceFile::read_q_norm(Index layer, Index q_head, TokenRange range) const {
  const TracePart& part = impl_->of_layer(layer);
  const std::size_t array = part.layer_array(layer, "stats/q_norm", "stats");
  return part.read_rows(array, part.info.q_slot(q_head), part.locate(array, range));
}

Tensor<float> TraceFile::read_k_norm(Index layer, Index kv_head, TokenRange range) const {
  const TracePart& part = impl_->of_layer(layer);
  const std::size_t array = part.layer_array(layer, "stats/k_norm", "stats");
  return part.read_rows(array, part.info.kv_slot(kv_head), part.locate(array, range));
}

Tensor<float> TraceFile::read_page_min(Index layer, Index kv_head) const {
  const TracePart& part = impl_->of_layer(layer);
  const std::size_t array = part.layer_array(layer, "stats/page_min", "stats");
  return part.read_rows(array, part.info.kv_slot(kv_head), {0, part.info.n_full_pages()});
}

Tensor<float> TraceFile::read_page_max(Index layer, Index kv_head) const {
  const TracePart& part = impl_->of_layer(layer);
  const std::size_t array = part.layer_array(layer, "stats/page_max", "stats");
  return part.read_rows(array, part.info.kv_slot(kv_head), {0, part.info.n_full_pages()});
}

}  // namespace kvscope

// The recorder's end of a trace set: one TraceReceiver that hands each layer to the writer of its
// part.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/new_file.hpp"
#include "core/base/read_files.hpp"
#include "core/trace/result.hpp"
#include "traces/part_writer.hpp"
#include "traces/raw_file.hpp"
#include "traces/set_files.hpp"
#include "traces/trace_set.hpp"

namespace kvscope {

namespace {

namespace fs = std::filesystem;

/// The parts commit a unit one after the other, so a kill leaves some with more units than
/// others; the set has the units that all of them have.
class SetWriter final : public TraceReceiver {
 public:
  SetWriter(fs::path out, const WriterOptions& options, Index layers_per_part)
      : out_(std::move(out)),
        growing_(part_path(out_)),
        options_(options),
        layers_per_part_(layers_per_part) {}
  ~SetWriter() override {
    if (writers_.empty() || n_settled() > 0) return;
    // No unit is whole, even if some part has one: there is nothing to recover.
    writers_.clear();
    for (const SetPart& part : manifest_.parts) remove_quietly(part_path(named(part)));
    remove_quietly(growing_);
  }

  void begin(const TraceInfo& info) override;
  void announce_prompt(std::span<const TokenId> ids) override {
    for (const auto& writer : writers_) writer->announce_prompt(ids);
  }
  void write_layer(const LayerRows& rows) override { writer_of(rows.layer).write_layer(rows); }
  void write_attn(const AttnRows& rows) override { writer_of(rows.layer).write_attn(rows); }
  void write_routing(const RoutingRows& rows) override {
    writer_of(rows.layer).write_routing(rows);
  }
  void write_side(const SideRows& rows) override { writer_of(rows.layer).write_side(rows); }
  void write_logits(TensorView<const float> logits) override {
    require_begun("write_logits");
    writers_.back()->write_logits(logits);
  }
  void write_tokens(std::span<const TokenId> ids, std::span<const std::string> bytes) override {
    require_begun("write_tokens");
    for (const auto& writer : writers_) writer->write_tokens(ids, bytes);
  }
  void commit_unit() override {
    require_begun("commit_unit");
    for (const auto& writer : writers_) writer->commit_unit();
    ++n_units_;
  }
  void finish(TraceStatus status) override;
  std::int64_t bytes_written() const override {
    std::int64_t n_bytes = 0;
    for (const auto& writer : writers_) n_bytes += writer->bytes_written();
    return n_bytes;
  }
  std::string content_hash() const override { return manifest_.content_hash; }
  Index n_waiting_units() const override { return n_units_ - static_cast<Index>(n_committed()); }
  std::string recovery_hint() const override {
    const std::size_t n_whole = n_settled();
    if (n_whole == 0) return "no unit was whole yet, so nothing is kept";
    return fmt::format(
        "the {} units recorded before are safe next to {}: {}'kvscope recover {}' makes a trace "
        "set of them",
        n_whole, growing_.string(), options_.kept_units ? kGoesOn : "", growing_.string());
  }

 private:
  void require_begun(const char* call) const {
    if (writers_.empty())
      throw ConfigError("{}: {} before begin or after finish", out_.string(), call);
  }
  /// Units that all parts have.
  std::size_t n_committed() const {
    std::size_t n = writers_.empty() ? 0 : writers_.front()->n_committed();
    for (const auto& writer : writers_) n = std::min(n, writer->n_committed());
    return n;
  }
  /// The same once no part has calls left to do.
  std::size_t n_settled() const {
    for (const auto& writer : writers_) (void)writer->bytes_written();
    return n_committed();
  }
  TraceReceiver& writer_of(Index layer) {
    require_begun("a layer");
    const auto found = writer_of_layer_.find(layer);
    if (found == writer_of_layer_.end())
      throw ConfigError("{}: layer {} is not part of this recording", out_.string(), layer);
    return *found->second;
  }
  bool goes_on() const { return options_.kept_units.value_or(0) > 0; }
  void take_up_parts() const;
  void take_place_of_stale() const;
  void publish_growing() const;
  fs::path named(const SetPart& part) const { return out_.parent_path() / part.file; }

  fs::path out_;
  fs::path growing_;  // the manifest until the end
  WriterOptions options_;
  Index layers_per_part_;
  SetManifest manifest_;
  std::vector<std::unique_ptr<PartWriter>> writers_;
  std::map<Index, TraceReceiver*> writer_of_layer_;
  Index n_units_ = 0;  // of commit_unit()
};

/// Parts of the killed run that had their names already become FILE.part again.
void SetWriter::take_up_parts() const {
  const SetManifest stale = read_set_manifest(growing_);
  if (!std::ranges::equal(stale.parts, manifest_.parts, {}, &SetPart::file, &SetPart::file))
    throw ConfigError("{} cannot be gone on with: its files have other layers (--split)",
                      growing_.string());
  for (const SetPart& part : manifest_.parts) {
    const fs::path file = file_of_part(growing_, stale, part);
    if (!is_part_path(file)) fs::rename(file, part_path(named(part)));
  }
}

/// What an earlier recording left under the growing manifest's name. Parts that this one has too
/// are replaced when it begins them.
void SetWriter::take_place_of_stale() const {
  if (!fs::exists(growing_)) return;
  const OwnFiles replaced;
  const SetManifest stale = read_set_manifest(growing_);
  for (const SetPart& part : stale.parts) {
    const fs::path file = part_path(named(part));
    if (is_being_recorded(file))
      throw IoError("{} is being recorded by another process", file.string());
  }
  if (!options_.overwrite && !options_.kept_units)
    throw IoError(
        "{} is left over from a recording that did not end: go on with it (--resume), save it with "
        "'kvscope recover {}', delete it and its parts, or ask to overwrite it",
        growing_.string(), growing_.string());
  for (const SetPart& part : stale.parts) {
    const fs::path file = part_path(named(part));
    const bool is_ours =
        std::ranges::find(manifest_.parts, part.file, &SetPart::file) != manifest_.parts.end();
    if (!is_ours && is_unfinished_recording(file)) remove_quietly(file);
  }
}

void SetWriter::begin(const TraceInfo& info) {
  if (!writers_.empty()) throw ConfigError("{}: begin was called twice", growing_.string());
  check_trace_info(info);
  check_output(out_, options_.overwrite);
  manifest_.parts = plan_parts(out_, info, layers_per_part_);
  if (goes_on()) take_up_parts();
  for (const SetPart& part : manifest_.parts) check_output(named(part), options_.overwrite);
  if (!goes_on()) {
    take_place_of_stale();
    publish_growing();
  }
  n_units_ = options_.kept_units.value_or(0);
  try {
    WriterOptions of_part = options_;
    of_part.n_threads /= static_cast<int>(manifest_.parts.size());
    if (options_.queue_bytes > 0)
      of_part.queue_bytes = std::max<std::size_t>(options_.queue_bytes / manifest_.parts.size(), 1);
    for (const SetPart& part : manifest_.parts) {
      writers_.push_back(create_part(named(part), of_part));
      for (const Index layer : part.layers) writer_of_layer_[layer] = writers_.back().get();
      writers_.back()->begin(info_of_part(info, part));
    }
  } catch (...) {
    writers_.clear();
    if (!goes_on()) remove_quietly(growing_);
    throw;
  }
}

void SetWriter::publish_growing() const {
  NewFile draft(out_, options_.overwrite);  // which gives no name that ends in .part
  draft.write(set_manifest_text(manifest_));
  publish_file(draft.temporary(), growing_, /*overwrite=*/true);
}

void SetWriter::finish(TraceStatus status) {
  require_begun("finish");
  for (const auto& writer : writers_) writer->settle();  // an error keeps all parts as they are
  const std::size_t n_whole = n_committed();
  // Where an older set's parts have the names, none of them goes before all of the new ones are
  // whole. Otherwise each part gets its name at once: of parts that are copied to be cut or
  // compressed, one at a time lies on the disk twice.
  const bool is_replacing = std::ranges::any_of(
      manifest_.parts, [&](const SetPart& part) { return fs::exists(named(part)); });
  std::vector<fs::path> files;
  for (std::size_t i = 0; i < writers_.size(); ++i) {
    writers_[i]->complete(status);
    files.push_back(is_replacing ? writers_[i]->whole_file() : named(manifest_.parts[i]));
    if (!is_replacing && n_whole > 0) writers_[i]->publish();
  }
  if (n_whole > 0) {
    seal_manifest(manifest_, files, status);
    publish_set(out_, manifest_, options_.overwrite, /*keep=*/{}, [&] {
      for (const auto& writer : writers_) {
        if (is_replacing) writer->publish();
      }
    });
  }
  remove_quietly(growing_);
}

}  // namespace

std::unique_ptr<TraceReceiver> create_trace_set(const fs::path& out, const WriterOptions& options,
                                                Index layers_per_part) {
  if (options.gzip_level && (*options.gzip_level < 1 || *options.gzip_level > 9))
    throw ConfigError("gzip level: expected 1 to 9, found {}", *options.gzip_level);
  check_output(out, options.overwrite);
  return std::make_unique<SetWriter>(out, options, layers_per_part);
}

}  // namespace kvscope

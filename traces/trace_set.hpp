// A trace set: one recording as several trace files, each with some of its layers, and a manifest
// (NAME.kvset, JSON) that says which file holds which.
//
// Every part is a whole trace of its layers and opens by itself. The set opens by its manifest, and
// then reads as the single file would: it has the same content hash, since that is made of the same
// checksum tables in the same order. A part is opened when one of its layers is first read, so
// whoever works on some layers reads their files only. While it is recorded the manifest is
// NAME.kvset.part, and each part FILE.part.
#pragma once

#include <filesystem>

#include "core/base/vocabulary.hpp"
#include "core/trace/info.hpp"
#include "core/trace/receiver.hpp"
#include "traces/writer.hpp"

namespace kvscope {

/// One file of a set.
struct SetPart {
  std::string file;                 // its name, in the manifest's folder
  std::vector<Index> layers;        // ascending
  std::vector<Index> index_layers;  // those of them that have an indexer
  bool has_logits = false;
  std::int64_t bytes = 0;    // of the file; 0 while it is recorded
  std::string content_hash;  // empty while it is recorded
};

inline constexpr std::string_view kSetVersion = "1.0";

struct SetManifest {
  std::string version{kSetVersion};  // as it was read; what is written has this program's
  TraceStatus status = TraceStatus::recording;
  std::string uuid;          // of the whole; empty while it is recorded
  std::string content_hash;  // of the whole; empty while it is recorded
  std::vector<SetPart> parts;

  /// All layers, ascending.
  std::vector<Index> layers() const;
  std::vector<Index> index_layers() const;
};

/// True for NAME.kvset and NAME.kvset.part.
bool is_set_path(const std::filesystem::path& path);

/// Throws IoError, or FormatError with one sentence: not JSON, a field that is missing or out of
/// range, a layer in two parts, a name that leads elsewhere, a checksum that does not fit.
SetManifest read_set_manifest(const std::filesystem::path& path);
std::string set_manifest_text(const SetManifest& manifest);

/// Where the parts lie: the folder of the manifest, behind symbolic links.
std::filesystem::path set_folder(const std::filesystem::path& manifest);

/// Compares what the manifest says of a part's file with the file, before anything is read of it
/// and not before: whoever works on some layers needs their parts only. Throws IoError if it is
/// missing, FormatError if it has another size.
void check_part_file(const std::filesystem::path& manifest, const SetPart& part,
                     const std::filesystem::path& file);

/// The layers in groups of `per_part`, in order.
std::vector<std::vector<Index>> split_layers(const std::vector<Index>& layers, Index per_part);

/// The name of the part with these layers of a model with n_layers, beside OUT.kvset:
/// "OUT.layers-04-07.h5".
std::string set_part_name(const std::filesystem::path& out, const std::vector<Index>& layers,
                          Index n_layers);

/// What one part of a recording holds: these layers, and the logits if it is the last one.
TraceInfo info_of_part(const TraceInfo& whole, const SetPart& part);
/// What the set holds, from the header of the part that `head_part` names.
TraceInfo info_of_set(const SetManifest& manifest, const TraceInfo& head);
/// The part whose header says most: the first with an indexer, else the first.
std::size_t head_part(const SetManifest& manifest);

/// The parts that a plan is written as. Bytes and hashes are empty.
std::vector<SetPart> plan_parts(const std::filesystem::path& out, const TraceInfo& whole,
                                Index layers_per_part);

/// A receiver that writes a set: OUT.kvset and its parts. As create_trace; also throws ConfigError
/// if `out` does not end in .kvset or layers_per_part is less than 1.
std::unique_ptr<TraceReceiver> create_trace_set(const std::filesystem::path& out,
                                                const WriterOptions& options,
                                                Index layers_per_part);

/// Size of all parts together, as estimated_file_bytes.
std::int64_t estimated_set_bytes(const TraceInfo& info, Index layers_per_part);

struct TraceLayout;

/// What makes parts parts of one recording: shapes, units and tokens, without layers. Parts of one
/// set have equal texts.
std::string recording_identity(const TraceInfo& info, std::span<const TokenId> tokens);

/// The content hash of the whole, of its parts in order.
std::string set_content_hash(const TraceInfo& whole, const std::vector<TraceLayout>& parts);

/// What the manifest says of a part and its header does not: a clause; empty if they agree.
std::string part_mismatch(const SetPart& part, const TraceInfo& header);

/// Fills status, uuid, hashes and sizes of a manifest whose parts lie whole in `files`, one for
/// each, maybe not under their names yet. Throws FormatError if they are not the parts that it
/// means, or not of one recording.
void seal_manifest(SetManifest& manifest, const std::vector<std::filesystem::path>& files,
                   TraceStatus status);

}  // namespace kvscope

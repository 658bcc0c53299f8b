#include "traces/trace_set.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/utf8.hpp"
#include "core/base/whole_file.hpp"
#include "traces/hash.hpp"
#include "traces/layout.hpp"
#include "traces/raw_file.hpp"

namespace kvscope {

namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

constexpr std::string_view kSetFormat = "kvscope-trace-set";
constexpr std::string_view kSetEnding = ".kvset";
constexpr std::size_t kMostManifestBytes = std::size_t{16} << 20;
constexpr std::size_t kMostParts = 4096;
constexpr Index kMostLayers = 1 << 20;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 62;

OrderedJson json_of(const SetManifest& manifest) {
  OrderedJson parts = OrderedJson::array();
  for (const SetPart& part : manifest.parts) {
    OrderedJson one = {{"file", part.file}, {"layers", part.layers}};
    if (!part.index_layers.empty()) one["index_layers"] = part.index_layers;
    if (part.has_logits) one["logits"] = true;
    one["bytes"] = part.bytes;
    one["content_hash"] = part.content_hash;
    parts.push_back(std::move(one));
  }
  return {{"format", std::string(kSetFormat)},
          {"version", manifest.version},
          {"status", std::string(name_of(manifest.status))},
          {"uuid", manifest.uuid},
          {"content_hash", manifest.content_hash},
          {"parts", std::move(parts)}};
}

/// Of everything else in the file, in the order in which it is written.
std::string manifest_checksum(const SetManifest& manifest) {
  return "xxh128:" + hash_text(json_of(manifest).dump());
}

std::vector<Index> ascending_layers(const JsonObject& object, const std::string& field) {
  std::vector<Index> layers;
  for (const auto& item : object.list(field)) {
    const bool is_next = item.is_number_integer() && item.get<std::int64_t>() >= 0 &&
                         item.get<std::int64_t>() < kMostLayers &&
                         (layers.empty() || item.get<Index>() > layers.back());
    if (!is_next) object.refuse(field, "ascending numbers of layers");
    layers.push_back(item.get<Index>());
  }
  return layers;
}

SetPart part_of(const nlohmann::json& json, const std::string& where, std::size_t number) {
  const JsonObject object(json, where, fmt::format("parts[{}].", number));
  SetPart part;
  part.file = object.string("file");
  const fs::path name(part.file);
  if (part.file.empty() || name.filename() != name || part.file == "." || part.file == "..")
    object.refuse("file", "the name of a file in the manifest's folder");
  if (is_set_path(name))
    object.refuse("file", "the name of a trace file: a part is no set of its own");
  part.layers = ascending_layers(object, "layers");
  if (part.layers.empty()) object.refuse("layers", "at least one layer");
  if (object.find("index_layers") != nullptr) {
    part.index_layers = ascending_layers(object, "index_layers");
    if (!std::ranges::includes(part.layers, part.index_layers))
      object.refuse("index_layers", "some of the part's layers");
  }
  part.has_logits = object.boolean_or("logits", false);
  part.bytes = object.integer("bytes", 0, kMostBytes);
  part.content_hash = object.string("content_hash");
  return part;
}

std::string checked_version(const JsonObject& top) {
  if (top.string_if("format").value_or("") != kSetFormat)
    throw FormatError("{}: not the manifest of a trace set: its \"format\" is not \"{}\"",
                      top.where(), kSetFormat);
  const std::string& version = top.string("version");
  if (!version.starts_with("1."))
    throw FormatError("{}: a trace set of version {}, this program reads 1.x; use a newer kvscope",
                      top.where(), quote(version));
  return version;
}

std::vector<Index> layers_of_parts(const std::vector<SetPart>& parts,
                                   std::vector<Index> SetPart::*layers) {
  std::vector<Index> all;
  for (const SetPart& part : parts)
    all.insert(all.end(), (part.*layers).begin(), (part.*layers).end());
  std::ranges::sort(all);
  return all;
}

}  // namespace

std::vector<Index> SetManifest::layers() const {
  return layers_of_parts(parts, &SetPart::layers);
}
std::vector<Index> SetManifest::index_layers() const {
  return layers_of_parts(parts, &SetPart::index_layers);
}

bool is_set_path(const fs::path& path) {
  return path.extension() == kSetEnding ||
         (is_part_path(path) && path.stem().extension() == kSetEnding);
}

SetManifest read_set_manifest(const fs::path& path) {
  const std::string where = path.string();
  const nlohmann::json json = parse_json(read_regular_file(path, kMostManifestBytes), where);
  const JsonObject top(json, where);
  SetManifest manifest;
  manifest.version = checked_version(top);
  const auto status = trace_status_from_name(top.string("status"));
  if (!status) top.refuse("status", "recording, complete, interrupted or recovered");
  manifest.status = *status;
  manifest.uuid = top.string("uuid");
  manifest.content_hash = top.string("content_hash");
  const nlohmann::json& parts = top.list("parts");
  if (parts.empty() || parts.size() > kMostParts)
    top.refuse("parts", fmt::format("1 to {} parts", kMostParts));
  std::set<std::string> files;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    manifest.parts.push_back(part_of(parts[i], where, i));
    if (!files.insert(manifest.parts.back().file).second) top.refuse("parts", "every file once");
  }
  const std::vector<Index> layers = manifest.layers();
  if (std::ranges::adjacent_find(layers) != layers.end())
    top.refuse("parts", "every layer in one part");
  if (top.string("checksum") != manifest_checksum(manifest))
    throw FormatError("{}: the manifest does not have its checksum: it is damaged or was edited",
                      where);
  return manifest;
}

std::string set_manifest_text(const SetManifest& manifest) {
  OrderedJson json = json_of(manifest);
  json["checksum"] = manifest_checksum(manifest);
  return json.dump(1) + "\n";
}

fs::path set_folder(const fs::path& manifest) {
  std::error_code error;
  const fs::path real = fs::canonical(manifest, error);
  return (error ? fs::absolute(manifest) : real).parent_path();
}

void check_part_file(const fs::path& manifest, const SetPart& part, const fs::path& file) {
  const std::string layers = fmt::format("{}", fmt::join(part.layers, ","));
  std::error_code error;
  if (!fs::is_regular_file(file, error))
    throw IoError("{}: its part {} (layers {}) is missing: expected next to it", manifest.string(),
                  file.string(), layers);
  const auto n_bytes = static_cast<std::int64_t>(fs::file_size(file, error));
  if (part.bytes == 0 || (!error && n_bytes == part.bytes)) return;
  throw FormatError(
      "{}: its part {} (layers {}) has {} bytes, expected {}: it was cut or is another file",
      manifest.string(), file.string(), layers, n_bytes, part.bytes);
}

std::vector<std::vector<Index>> split_layers(const std::vector<Index>& layers, Index per_part) {
  std::vector<std::vector<Index>> groups;
  for (const Index layer : layers) {
    if (groups.empty() || static_cast<Index>(groups.back().size()) == per_part)
      groups.emplace_back();
    groups.back().push_back(layer);
  }
  return groups;
}

std::string set_part_name(const fs::path& out, const std::vector<Index>& layers, Index n_layers) {
  const std::size_t width = std::to_string(std::max<Index>(n_layers - 1, 0)).size();
  const std::string which = layers.size() == 1 ? fmt::format("layer-{:0{}}", layers.front(), width)
                                               : fmt::format("layers-{:0{}}-{:0{}}", layers.front(),
                                                             width, layers.back(), width);
  return fmt::format("{}.{}.h5", out.stem().string(), which);
}

TraceInfo info_of_part(const TraceInfo& whole, const SetPart& part) {
  TraceInfo info = whole;
  info.layers = part.layers;
  info.index.layers = part.index_layers;
  if (info.index.empty()) info.index = IndexShape{};
  info.capture.logits = part.has_logits;
  return info;
}

TraceInfo info_of_set(const SetManifest& manifest, const TraceInfo& head) {
  TraceInfo info = head;
  info.layers = manifest.layers();
  info.index.layers = manifest.index_layers();
  info.capture.logits = std::ranges::any_of(manifest.parts, &SetPart::has_logits);
  info.status = manifest.status;
  info.uuid = manifest.uuid;
  info.content_hash = manifest.content_hash;
  return info;
}

std::size_t head_part(const SetManifest& manifest) {
  const auto with_index = std::ranges::find_if(
      manifest.parts, [](const SetPart& part) { return !part.index_layers.empty(); });
  return with_index == manifest.parts.end()
             ? 0
             : static_cast<std::size_t>(with_index - manifest.parts.begin());
}

std::vector<SetPart> plan_parts(const fs::path& out, const TraceInfo& whole,
                                Index layers_per_part) {
  if (out.extension() != kSetEnding)
    throw ConfigError("{}: expected a name that ends in {} for a trace set, as in trace{}",
                      out.string(), kSetEnding, kSetEnding);
  if (first_invalid_utf8(out.filename().string()))
    throw ConfigError("{}: the name of a trace set has to be UTF-8", out.string());
  if (layers_per_part < 1)
    throw ConfigError("layers of a part: expected at least 1, found {}", layers_per_part);
  std::vector<SetPart> parts;
  for (const std::vector<Index>& layers : split_layers(whole.layers, layers_per_part)) {
    SetPart part;
    part.file = set_part_name(out, layers, whole.n_layers);
    part.layers = layers;
    std::ranges::set_intersection(layers, whole.index.layers,
                                  std::back_inserter(part.index_layers));
    parts.push_back(std::move(part));
  }
  if (!parts.empty()) parts.back().has_logits = whole.capture.logits;
  if (parts.size() > kMostParts)
    throw ConfigError("{}: {} parts, expected at most {}", out.string(), parts.size(), kMostParts);
  return parts;
}

std::int64_t estimated_set_bytes(const TraceInfo& info, Index layers_per_part) {
  std::int64_t n_bytes = 0;
  for (const SetPart& part : plan_parts("set.kvset", info, layers_per_part))
    n_bytes += estimated_file_bytes(info_of_part(info, part));
  return n_bytes;
}

std::string recording_identity(const TraceInfo& info, std::span<const TokenId> tokens) {
  TraceInfo shapes = info;
  shapes.layers.clear();
  shapes.index = IndexShape{};
  return hash_contents(shapes, tokens, std::vector<std::vector<std::uint64_t>>{}, {}) +
         hash_text(info.model_config);
}

std::string set_content_hash(const TraceInfo& whole, const std::vector<TraceLayout>& parts) {
  const std::vector<schema::ArraySpec> arrays = schema::trace_arrays(whole);
  const auto table = [&](std::size_t i) {
    for (const TraceLayout& part : parts) {
      const auto at = part.find(arrays[i].path);
      if (at) return part.checksum_list.open(part.file, *at).read_all<std::uint64_t>();
    }
    throw FormatError("{} is in no part of the set", arrays[i].path);
  };
  const TraceLayout& first = parts.front();
  std::vector<std::uint64_t> text;
  if (first.text_checksums) text = first.text_checksums->read_all<std::uint64_t>();
  const auto tokens = first.data(0).read_all<std::int32_t>();
  return hash_contents(whole, tokens, arrays.size(), table, text);
}

std::string part_mismatch(const SetPart& part, const TraceInfo& header) {
  if (header.layers != part.layers)
    return fmt::format("it has layers {}, expected {}", fmt::join(header.layers, ","),
                       fmt::join(part.layers, ","));
  if (header.index.layers != part.index_layers || header.capture.logits != part.has_logits)
    return "it holds other arrays";
  return {};
}

void seal_manifest(SetManifest& manifest, const std::vector<fs::path>& files, TraceStatus status) {
  std::vector<TraceLayout> parts;
  std::string identity;
  for (std::size_t i = 0; i < files.size(); ++i) {
    SetPart& part = manifest.parts[i];
    const std::string file = files[i].string();
    parts.push_back(open_layout(h5::File::open(files[i])));
    const TraceLayout& layout = parts.back();
    if (!layout.has_checksums())
      throw FormatError("{}: has no checksums, which parts of a trace set need", file);
    if (const std::string problem = part_mismatch(part, layout.info); !problem.empty())
      throw FormatError("{}: is not the part that the manifest means: {}", file, problem);
    const std::string own =
        recording_identity(layout.info, layout.data(0).read_all<std::int32_t>());
    if (identity.empty()) identity = own;
    if (own != identity)
      throw FormatError("{}: is of another recording than {}: tokens, shapes or units differ", file,
                        manifest.parts.front().file);
    part.bytes = static_cast<std::int64_t>(fs::file_size(files[i]));
    part.content_hash = layout.info.content_hash;
  }
  TraceInfo whole = info_of_set(manifest, parts[head_part(manifest)].info);
  whole.status = status;
  whole.content_hash = set_content_hash(whole, parts);
  manifest.status = status;
  manifest.content_hash = whole.content_hash;
  manifest.uuid = derive_uuid(whole);
}

}  // namespace kvscope

#include "core/selectors/artifact.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/whole_file.hpp"
#include "core/selectors/learned.hpp"

namespace kvscope {

namespace {

using ArtifactJson = nlohmann::ordered_json;

constexpr std::string_view kFormat = "kvscope artifact";
constexpr int kVersion = 1;
constexpr std::size_t kMostBytes = std::size_t{256} << 20;
constexpr Index kMostOfShape = 1'000'000;

/// Of everything but the checksum itself, in the order of the file.
std::string checksum_of(const ArtifactJson& json) {
  ArtifactJson rest = json;
  rest.erase("checksum");
  const std::string text =
      rest.dump(-1, ' ', /*ensure_ascii=*/true, ArtifactJson::error_handler_t::replace);
  return fmt::format("xxh3:{:016x}", XXH3_64bits(text.data(), text.size()));
}

}  // namespace

std::string artifact_text(std::string_view method, const Learned& learned, const TraceInfo& text) {
  ArtifactJson json = {{"format", kFormat},
                       {"version", kVersion},
                       {"method", method},
                       {"summary", learned.summary},
                       {"options", learned.options},
                       {"trace",
                        {{"uuid", text.uuid},
                         {"hash", text.content_hash},
                         {"tokens", text.n_tokens},
                         {"text", text.text_source}}},
                       {"model",
                        {{"name", text.model_name},
                         {"n_layers", text.n_layers},
                         {"n_q", text.n_q},
                         {"n_kv", text.n_kv},
                         {"d_head", text.d_head}}},
                       {"learned", learned.values}};
  // Names of files may be no UTF-8: what is replaced must be the same when it is read back.
  json = parse_ordered_json(json.dump(-1, ' ', true, ArtifactJson::error_handler_t::replace),
                            "an artifact");
  json["checksum"] = checksum_of(json);
  return json.dump(1) + "\n";
}

Artifact read_artifact(const std::string& file, std::string_view method) {
  const std::string where = fmt::format("{} (artifact of {})", file, method);
  const std::string text = read_whole_file(file, kMostBytes);
  ArtifactJson json;
  try {
    json = parse_ordered_json(text, where);
  } catch (const FormatError& error) {
    throw FormatError("{}: expected a file of kvscope fit {}: {}", file, method, error.what());
  }
  if (!json.is_object() || json.value("format", ArtifactJson()) != ArtifactJson(kFormat)) {
    throw FormatError("{}: expected a file that kvscope fit {} wrote, found JSON of something else",
                      file, method);
  }
  const nlohmann::json plain = json;
  const JsonObject top(plain, where);
  const auto version = top.integer("version", 0, 1'000'000);
  if (version != kVersion) {
    throw FormatError("{}: an artifact of version {}, expected {}: fit it again", file, version,
                      kVersion);
  }
  if (top.string("checksum") != checksum_of(json)) {
    throw FormatError(
        "{}: the artifact is damaged: its checksum does not fit its contents; fit it again", file);
  }
  if (top.string("method") != method) {
    throw ConfigError("{}: an artifact of {}, expected one of {} (kvscope fit {} TRACE --out FILE)",
                      file, top.string("method"), method, method);
  }
  const JsonObject trace = top.object("trace");
  const JsonObject model = top.object("model");
  Artifact artifact;
  artifact.origin = {std::string(method), file, top.string("checksum"), trace.string("uuid"),
                     trace.string("hash")};
  artifact.model_name = model.string("name");
  artifact.n_layers = model.integer("n_layers", 1, kMostOfShape);
  artifact.n_q = model.integer("n_q", 1, kMostOfShape);
  artifact.n_kv = model.integer("n_kv", 1, kMostOfShape);
  artifact.d_head = model.integer("d_head", 1, kMostOfShape);
  artifact.options = json["options"];
  artifact.values = json["learned"];
  return artifact;
}

void check_shape(const Artifact& artifact, const AttentionShape& shape) {
  if (artifact.n_layers == shape.n_layers && artifact.n_q == shape.n_q &&
      artifact.n_kv == shape.n_kv && artifact.d_head == shape.d_head) {
    return;
  }
  throw ConfigError(
      "{}: learned on {} with {} layers, {} query heads, {} KV heads and {} channels, expected the "
      "{}, {}, {} and {} of the model that runs",
      artifact.origin.file, artifact.model_name.empty() ? "a model" : artifact.model_name,
      artifact.n_layers, artifact.n_q, artifact.n_kv, artifact.d_head, shape.n_layers, shape.n_q,
      shape.n_kv, shape.d_head);
}

const Artifact& ArtifactFile::get() const {
  if (loaded_ == nullptr) loaded_ = std::make_shared<const Artifact>(read_artifact(file_, method_));
  return *loaded_;
}

std::vector<ArtifactOrigin> ArtifactFile::origins() const {
  if (!is_named()) return {};
  return {get().origin};
}

const ArtifactJson& ArtifactFile::list(std::string_view name, std::size_t n) const {
  const ArtifactJson& values = get().values;
  const auto it = values.is_object() ? values.find(std::string(name)) : values.end();
  if (it == values.end() || !it->is_array() || it->size() != n)
    refuse(fmt::format("{}: expected a list of {}", name, n));
  return *it;
}

std::vector<double> ArtifactFile::numbers(const ArtifactJson& value, std::size_t n,
                                          std::string_view what) const {
  if (!value.is_array() || value.size() != n)
    refuse(fmt::format("{}: expected {} numbers", what, n));
  std::vector<double> out;
  for (const ArtifactJson& x : value) {
    if (!x.is_number() || !std::isfinite(x.get<double>()))
      refuse(fmt::format("{}: expected finite numbers", what));
    out.push_back(x.get<double>());
  }
  return out;
}

std::vector<Index> ArtifactFile::indices(const ArtifactJson& value, std::size_t n, Index low,
                                         Index high, std::string_view what) const {
  if (!value.is_array() || value.size() != n)
    refuse(fmt::format("{}: expected {} whole numbers", what, n));
  std::vector<Index> out;
  for (const ArtifactJson& x : value) {
    if (!x.is_number_integer() || x.get<double>() < static_cast<double>(low) ||
        x.get<double>() > static_cast<double>(high))
      refuse(fmt::format("{}: expected whole numbers in [{}, {}]", what, low, high));
    out.push_back(x.get<Index>());
  }
  return out;
}

std::vector<Index> ArtifactFile::layers() const {
  const ArtifactJson& values = get().values;
  const auto it = values.is_object() ? values.find("layers") : values.end();
  if (it == values.end() || !it->is_array()) refuse("layers: expected a list");
  std::vector<Index> layers = indices(*it, it->size(), 0, get().n_layers - 1, "layers");
  if (std::adjacent_find(layers.begin(), layers.end(), std::greater_equal<>()) != layers.end())
    refuse("layers: expected them ascending");
  return layers;
}

void ArtifactFile::refuse(std::string_view what) const {
  throw FormatError("{}: not what kvscope fit {} writes: {}; fit it again", file_, method_, what);
}

}  // namespace kvscope

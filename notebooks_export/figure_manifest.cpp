#include "notebooks_export/figure_manifest.hpp"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/fields_json.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/version.hpp"
#include "core/trace/result.hpp"
#include "notebooks_export/open_result.hpp"
#include "traces/hash.hpp"

namespace kvscope {

namespace {

constexpr const char* kFormat = "kvscope-figure";
constexpr std::int64_t kVersion = 1;

/// Unknown keys are refused.
template <class Options>
void read_options(const JsonObject& json, Options& options) {
  if (fields_from_json(json.value(), options) != json.value().size())
    throw FormatError("{}: it has options that this version does not know", json.where());
}

std::vector<std::string> strings_of(const JsonObject& json, const std::string& field) {
  std::vector<std::string> list;
  for (const auto& item : json.list(field)) {
    if (!item.is_string()) json.refuse(field, "a list of texts");
    list.push_back(item.get<std::string>());
  }
  return list;
}

}  // namespace

Json manifest_to_json(const FigureManifest& manifest) {
  Json json = {{"format", kFormat},
               {"version", kVersion},
               {"figure", manifest.figure},
               {"stem", manifest.stem},
               {"caption", manifest.caption},
               {"options", fields_to_json(manifest.options)},
               {"render", fields_to_json(manifest.render)},
               {"formats", Json::array()},
               {"inputs", Json::array()},
               {"files", Json::array()},
               {"command", manifest.command},
               {"writer", manifest.writer}};
  for (FigureFormat format : manifest.formats) json["formats"].push_back(enum_name(format));
  for (const ManifestInput& input : manifest.inputs) {
    json["inputs"].push_back({{"file", input.file},
                              {"hash", input.hash},
                              {"kind", input.kind},
                              {"config_hash", input.config_hash},
                              {"command", input.command},
                              {"trace_uuids", input.trace_uuids},
                              {"trace_hashes", input.trace_hashes}});
  }
  for (const ManifestFile& file : manifest.files) {
    json["files"].push_back({{"name", file.name}, {"bytes", file.n_bytes}, {"hash", file.hash}});
  }
  return json;
}

FigureManifest manifest_from_text(std::string_view text, const std::string& where) {
  const nlohmann::json json = parse_json(text, where);
  const JsonObject top(json, where);
  if (top.string_if("format") != kFormat)
    throw FormatError("{}: this is no manifest of a figure (format \"{}\")", where, kFormat);
  if (top.integer("version", 1, 1'000'000) > kVersion) {
    throw FormatError("{}: a manifest of version {}, this kvscope knows version {}", where,
                      top.integer("version", 1, 1'000'000), kVersion);
  }
  FigureManifest manifest;
  manifest.figure = top.string("figure");
  manifest.stem = top.string("stem");
  read_options(top.object("options"), manifest.options);
  read_options(top.object("render"), manifest.render);
  check_fields(manifest.render);
  for (const std::string& name : strings_of(top, "formats")) {
    FigureFormat format{};
    parse_field(Field{"formats", ""}, name, format);
    manifest.formats.push_back(format);
  }
  manifest.caption = strings_of(top, "caption");
  for (const auto& item : top.list("inputs")) {
    const JsonObject input(item, where, "inputs.");
    manifest.inputs.push_back({input.string("file"), input.string("hash"), input.string("kind"),
                               input.string("config_hash"), input.string("command"),
                               strings_of(input, "trace_uuids"),
                               strings_of(input, "trace_hashes")});
  }
  for (const auto& item : top.list("files")) {
    const JsonObject file(item, where, "files.");
    const std::string& name = file.string("name");
    if (name.find('/') != std::string::npos || name.empty()) file.refuse("name", "a file name");
    manifest.files.push_back(
        {name, static_cast<std::size_t>(file.integer("bytes", 0, std::int64_t{1} << 40)),
         file.string("hash")});
  }
  manifest.command = top.string("command");
  manifest.writer = top.string("writer");
  return manifest;
}

FigureOutcome draw_figure_of(FigureManifest asked) {
  const FigureKind kind = find_figure_kind(asked.figure);
  std::vector<std::unique_ptr<ResultView>> results;
  FigureInput input{{}, asked.options};
  for (ManifestInput& one : asked.inputs) {
    results.push_back(open_result(one.file));
    input.results.push_back(results.back().get());
    const ResultInfo& info = results.back()->info();
    one = {one.file,          hash_file(one.file), info.kind,        info.config_hash,
           info.command_line, info.trace_uuids,    info.trace_hashes};
  }
  const plot::Figure figure = make_figure(kind, input);
  FigureOutcome outcome;
  outcome.files = render_figure(figure, asked.render, asked.formats, asked.stem, &outcome.notes);
  asked.caption = figure.caption;
  asked.files.clear();
  for (const OutputFile& file : outcome.files) {
    asked.files.push_back(
        {file.name, file.bytes.size(), fmt::format("xxh128:{}", hash_text(file.bytes))});
  }
  asked.writer = writer_name();
  outcome.manifest = std::move(asked);
  return outcome;
}

}  // namespace kvscope

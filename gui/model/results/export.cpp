#include "gui/model/results/export.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/fields_json.hpp"
#include "core/base/json.hpp"
#include "core/base/version.hpp"
#include "traces/hash.hpp"

namespace kvscope::gui {

namespace fs = std::filesystem;

namespace {

constexpr const char* kFormat = "kvscope-view";
constexpr int kVersion = 1;

/// File systems take 255 bytes; endings and "-12" need some.
constexpr std::size_t kLongestStem = 200;

void check_stem(const std::string& stem) {
  const bool has_bad = std::ranges::any_of(
      stem, [](char c) { return c == '/' || c == '\\' || static_cast<unsigned char>(c) < 0x20; });
  if (!stem.empty() && stem.size() <= kLongestStem && stem.front() != '.' && !has_bad) return;
  throw ConfigError(
      "\"{}\" cannot be a file name: expected 1 to {} letters without slashes, not "
      "beginning with a dot",
      stem.substr(0, 60), kLongestStem);
}

Json manifest_of(const ExportRequest& request, const std::vector<OutputFile>& files) {
  Json json = {{"format", kFormat}, {"version", kVersion}, {"panel", request.panel}};
  json["figure"] = request.figure ? Json(request.figure->name) : Json(nullptr);
  json["stem"] = request.stem;
  json["caption"] = request.figure ? Json(request.figure->caption) : Json::array();
  json["render"] = fields_to_json(request.render);
  json.update(request.seen);
  json["files"] = Json::array();
  for (const OutputFile& file : files) {
    json["files"].push_back({{"name", file.name},
                             {"bytes", file.bytes.size()},
                             {"hash", "xxh128:" + hash_text(file.bytes)}});
  }
  json["writer"] = writer_name();
  return json;
}

/// Letters, digits, - and _; runs of anything else become one -.
std::string plain(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '_' || c == '-';
    if (is_plain) {
      out += c;
    } else if (!out.empty() && out.back() != '-') {
      out += '-';
    }
  }
  while (!out.empty() && out.back() == '-') out.pop_back();
  return out;
}

}  // namespace

std::vector<OutputFile> export_files(const ExportRequest& request) {
  check_stem(request.stem);
  if (request.formats.empty())
    throw ConfigError("no format is chosen: tick at least one of svg, pdf, png, tex and csv");
  std::vector<FigureFormat> drawings;
  for (const ExportFormat format : request.formats) {
    const bool is_drawing = format != ExportFormat::csv;
    if (is_drawing) drawings.push_back(static_cast<FigureFormat>(format));  // the same ones first
    if (request.figure || (!is_drawing && request.csv)) continue;
    throw ConfigError(
        "the panel \"{}\" shows nothing to export as {} yet: wait until it is "
        "computed, or choose what it needs",
        request.panel, enum_name(format));
  }
  std::vector<OutputFile> files;
  if (request.figure && !(drawings.empty() && request.csv)) {
    std::vector<std::string> notes;
    files = render_figure(*request.figure, request.render, drawings, request.stem, &notes);
    const bool has_csv = std::ranges::any_of(
        files, [&](const OutputFile& file) { return file.name == request.stem + ".csv"; });
    if (!has_csv && !request.csv && std::ranges::count(request.formats, ExportFormat::csv) > 0)
      throw ConfigError("{}", fmt::join(notes, "; "));
    if (request.csv) {  // the panel's own numbers; of a large picture there are none of the figure
      std::erase_if(files,
                    [&](const OutputFile& file) { return file.name == request.stem + ".csv"; });
      files.push_back({request.stem + ".csv", *request.csv});
    }
  } else {
    files.push_back({request.stem + ".csv", *request.csv});
  }
  // A token may hold bytes that are no UTF-8; the manifest says so with the replacement character.
  files.push_back({request.stem + ".json", json_text(manifest_of(request, files), 2) + "\n"});
  return files;
}

std::vector<fs::path> export_view(const ExportRequest& request, Existing existing) {
  const std::vector<OutputFile> files = export_files(request);
  write_output_files(request.folder, files, existing == Existing::replace);
  std::vector<fs::path> paths;
  for (const OutputFile& file : files) paths.push_back(request.folder / file.name);
  return paths;
}

ExportRequest export_request(const Session& session, const std::string& panel, Extent extent,
                             const fs::path& folder) {
  ExportRequest request{.panel = panel,
                        .folder = folder,
                        .stem = free_stem(folder, suggested_stem(session, panel, extent))};
  request.seen = {{"traces", Json::array()}, {"results", Json::array()}};
  for (const auto& trace : {session.document(), session.second()}) {
    if (!trace) continue;
    const TraceInfo& info = trace->info();
    request.seen["traces"].push_back(
        {{"file", trace->name()}, {"uuid", info.uuid}, {"content_hash", info.content_hash}});
  }
  for (const auto& result : session.results())
    request.seen["results"].push_back(fs::path(result->name()).filename().string());
  request.seen["session"] = session.to_json(folder);
  return request;
}

std::string suggested_stem(const Session& session, const std::string& panel, Extent extent) {
  std::string stem = plain(panel);
  if (const auto trace = session.document()) {
    const Selection& s = session.selection();
    const std::string name = plain(trace->path().stem().string()).substr(0, 80);
    stem += fmt::format("{}{}", name.empty() ? "" : "-", name);
    if (extent != Extent::trace) stem += fmt::format("-layer{}", s.layer);
    if (extent == Extent::head) stem += fmt::format("-head{}", s.q_head);
  }
  return stem.empty() ? "view" : stem;
}

std::string free_stem(const fs::path& folder, const std::string& stem) {
  const auto in_use = [&](const std::string& name) {
    return std::ranges::any_of(EnumNames<ExportFormat>::value, [&](std::string_view ending) {
      std::error_code error;
      const fs::path file = fmt::format("{}.{}", name, ending);
      return fs::exists((folder.empty() ? fs::path(".") : folder) / file, error);
    });
  };
  std::string name = stem;
  for (int number = 2; in_use(name); ++number) name = fmt::format("{}-{}", stem, number);
  return name;
}

}  // namespace kvscope::gui

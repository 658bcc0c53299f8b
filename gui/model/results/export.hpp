// "Export what I see": the figure of a panel as files of a paper, the numbers behind it, and a
// manifest that says what was looked at.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gui/model/session/session.hpp"
#include "notebooks_export/figure_export.hpp"

namespace kvscope::gui {

enum class ExportFormat { svg, pdf, png, tex, csv };

/// What of a panel is written, and where.
struct ExportRequest {
  std::string panel;                   // "attention-map"
  std::optional<plot::Figure> figure;  // Panel::figure(); must be there for all formats but csv
  std::optional<std::string> csv;      // Panel::csv(); empty: the numbers of the figure
  std::vector<ExportFormat> formats = {ExportFormat::pdf};  // at least one
  RenderOptions render;
  std::filesystem::path folder;
  std::string stem;  // of the files' names, without an ending
  /// What was looked at, for the manifest: "traces" (file, uuid, content hash), "results" (files of
  /// open ones), "session" (Session::to_json), "panel_options", and "window" (width, height and
  /// scale: what was in sight).
  nlohmann::ordered_json seen = nlohmann::ordered_json::object();
};

/// Draws: STEM.svg, .pdf, .png and .tex (with its images) as asked for, always STEM.csv, and
/// the manifest STEM.json. Throws ConfigError if there is nothing to export, the figure cannot
/// be drawn or the stem is no file name; IoError without the figures' font. May take a second:
/// for worker threads.
std::vector<OutputFile> export_files(const ExportRequest& request);

/// What becomes of files that are there already.
enum class Existing { keep, replace };

/// export_files, written all or none. Returns the paths, the drawing first and the manifest last.
/// Throws what export_files throws, and IoError if a file is there already (unless replaced), or
/// cannot be written; the folder's parent must exist.
std::vector<std::filesystem::path> export_view(const ExportRequest& request, Existing existing);

/// A request with everything but the figure, csv and options of the panel filled from the session.
/// `folder`: what the session's paths are relative to; usually the folder.
ExportRequest export_request(const Session& session, const std::string& panel, Extent extent,
                             const std::filesystem::path& folder);

/// "compare-verifier-layer3-head5": panel, trace, and what is shown of it, with letters, digits, -
/// and _ only.
std::string suggested_stem(const Session& session, const std::string& panel, Extent extent);

/// `stem`, or stem-2, stem-3, ...: the first for which no file STEM.* of an export is in the
/// folder.
std::string free_stem(const std::filesystem::path& folder, const std::string& stem);

}  // namespace kvscope::gui

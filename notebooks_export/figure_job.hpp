// Drawing one figure from result files: what `kvscope figure`,
// `kvscope reproduce` and the explorer have in common.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "notebooks_export/figure_manifest.hpp"

namespace kvscope {

/// What is to be drawn, from which files.
struct FigureJob {
  std::string figure;
  std::vector<std::filesystem::path> results;
  FigureOptions options;
  RenderOptions render;
  std::vector<FigureFormat> formats;
  std::string stem;
};

/// The drawn files, in memory; the manifest is not among them.
struct FigureOutcome {
  std::vector<OutputFile> files;
  FigureManifest manifest;         // inputs named as given
  std::vector<std::string> notes;  // of render_notes
};

/// Reads the results, makes the figure, lays it out and draws it. `command_line` is what the
/// manifest names as its maker. Throws ConfigError for an unknown kind, and what the steps throw.
FigureOutcome run_figure_job(const FigureJob& job, const std::string& command_line);

}  // namespace kvscope

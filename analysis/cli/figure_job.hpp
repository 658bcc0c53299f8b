// Drawing one figure from result files: what `figure` and `reproduce` have in common.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "notebooks_export/figure_manifest.hpp"

namespace kvscope::cli {

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
  FigureManifest manifest;  // inputs named as given
};

/// The kind of that name. Throws UsageError with the nearest name for an unknown one.
FigureKind find_figure_kind(const std::string& name);

/// Reads, makes, lays out and draws. Throws what these throw.
FigureOutcome run_figure_job(const FigureJob& job, const std::string& command_line);

}  // namespace kvscope::cli

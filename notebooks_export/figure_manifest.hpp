// How a figure came about, as the JSON file beside it: enough to draw it again and to see whether
// the bytes are the same.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/figures/figure_kind.hpp"
#include "notebooks_export/figure_export.hpp"

namespace kvscope {

/// A result that a figure was drawn from.
struct ManifestInput {
  std::string file;         // as seen from the manifest's folder
  std::string hash;         // of the bytes
  std::string kind;         // "sweep"
  std::string config_hash;  // of the analysis' options
  std::string command;      // that made the result
  std::vector<std::string> trace_uuids;
  std::vector<std::string> trace_hashes;
};

struct ManifestFile {
  std::string name;
  std::size_t n_bytes = 0;
  std::string hash;
};

struct FigureManifest {
  std::string figure;  // name of the kind
  std::string stem;    // of the files' names
  FigureOptions options;
  RenderOptions render;
  std::vector<FigureFormat> formats;
  std::vector<std::string> caption;
  std::vector<ManifestInput> inputs;
  std::vector<ManifestFile> files;
  std::string command;
  std::string writer;
};

nlohmann::ordered_json manifest_to_json(const FigureManifest& manifest);

/// Throws FormatError for text that is no manifest, or one of a newer version.
FigureManifest manifest_from_text(std::string_view text, const std::string& where);

/// The drawn files, in memory; the manifest is not among them.
struct FigureOutcome {
  std::vector<OutputFile> files;
  FigureManifest manifest;         // inputs named as given
  std::vector<std::string> notes;  // of render_figure
};

/// Reads the results that `asked` names, makes its figure, lays it out and draws it; what comes of
/// it stands in the outcome's manifest. Throws ConfigError for an unknown kind, and what the steps
/// throw.
FigureOutcome draw_figure_of(FigureManifest asked);

}  // namespace kvscope

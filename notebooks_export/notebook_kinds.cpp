#include "notebooks_export/notebook_kinds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/base/embedded_file.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/lists.hpp"

namespace kvscope {

std::span<const EmbeddedFile> notebook_sources();  // notebooks/*.py (CMakeLists.txt)

namespace {

constexpr const char* kParameters = "parameters";  // the cell that papermill replaces

struct NotebookCell {
  bool is_code = true;
  std::string id;
  std::string source;  // without a final line break
};

void check_results(const NotebookKind& kind, const NotebookInputs& inputs) {
  if (inputs.results.empty())
    throw ConfigError("notebook {}: expected at least one result", kind.name);
  std::set<std::string> seen;
  for (const NotebookFile& result : inputs.results) {
    if (!seen.insert(result.kind).second)
      throw ConfigError("notebook {}: two results are of kind {}, expected one", kind.name,
                        result.kind);
    const auto& kinds = kind.result_kinds;
    if (std::find(kinds.begin(), kinds.end(), result.kind) != kinds.end()) continue;
    throw ConfigError("notebook {} shows results of {}, but {} is one of {}", kind.name,
                      fmt::join(kinds, ", "), result.path, quote(result.kind));
  }
}

Json paths_of(const std::vector<NotebookFile>& files) {
  Json paths = Json::array();
  for (const NotebookFile& file : files) paths.push_back(file.path);
  return paths;
}

Json expected_of(const NotebookInputs& inputs) {
  Json expected = Json::object();
  for (const NotebookFile& file : inputs.results) {
    expected[file.path] = {{"kind", file.kind}, {"config_hash", file.id}};
  }
  for (const NotebookFile& file : inputs.traces) {
    expected[file.path] = {{"uuid", file.id}, {"content_hash", file.hash}};
  }
  return expected;
}

/// Cells of a Python file that is built in. One begins with "# %% ID" (code) or "# %% [markdown]
/// ID"; lines of a markdown cell are comments. What stands before the first marker belongs to the
/// file, not to the notebook.
std::vector<NotebookCell> cells_of(std::string_view text) {
  std::vector<NotebookCell> cells;
  for (const std::string& line : split_words(text, '\n')) {
    if (line.starts_with("# %% ")) {
      const bool is_code = !line.starts_with("# %% [markdown] ");
      cells.push_back({is_code, line.substr(is_code ? 5 : 16), ""});
    } else if (!cells.empty()) {
      const std::size_t sign = cells.back().is_code ? 0 : std::min<std::size_t>(2, line.size());
      cells.back().source += line.substr(sign) + "\n";
    }
  }
  for (NotebookCell& cell : cells) {
    cell.source.erase(0, cell.source.find_first_not_of('\n'));
    while (cell.source.ends_with('\n') || cell.source.ends_with(' ')) cell.source.pop_back();
  }
  return cells;
}

/// A cell of nbformat 4.5, which keeps a source as its lines, each but the last with its break.
Json cell_json(const NotebookCell& cell) {
  Json json;
  json["cell_type"] = cell.is_code ? "code" : "markdown";
  if (cell.is_code) json["execution_count"] = nullptr;
  json["id"] = cell.id;
  json["metadata"] = Json::object();
  if (cell.id == kParameters) json["metadata"]["tags"] = Json::array({kParameters});
  if (cell.is_code) json["outputs"] = Json::array();
  json["source"] = Json::array();
  for (const std::string& line : split_words(cell.source, '\n'))
    json["source"].push_back(line + "\n");
  json["source"].back().get_ref<std::string&>().pop_back();
  return json;
}

}  // namespace

const std::vector<NotebookKind>& notebook_kinds() {
  static const std::vector<NotebookKind> kinds = {
      {"geometry",
       "where queries and keys lie, and S_q against the largest attention weight",
       {"geometry", "query-selection", "quoka"},
       built_in_text(notebook_sources(), "geometry")},
      {"recall",
       "attention kept, recall and output error of a sweep's selectors by budget and bytes",
       {"sweep"},
       built_in_text(notebook_sources(), "recall")},
      {"coverage",
       "what a selection keeps per layer and head, and which pages each step reads",
       {"coverage", "quest"},
       built_in_text(notebook_sources(), "coverage")},
      {"bounds",
       "Theorem B.1 and Quest's page bounds against measured values",
       {"theorem-b1", "quest"},
       built_in_text(notebook_sources(), "bounds")},
      {"layer-map",
       "KL divergence of all layer pairs, and SpecAttn's layer map",
       {"layer-map"},
       built_in_text(notebook_sources(), "layer_map")},
      {"simulation",
       "perplexity, retrieval and speculative decoding with a selector inside the model",
       {"simulate-perplexity", "simulate-retrieval", "simulate-passkey", "simulate-needle",
        "simulate-ruler", "simulate-speculative"},
       built_in_text(notebook_sources(), "simulation")},
  };
  return kinds;
}

std::string make_notebook(const NotebookKind& kind, const NotebookInputs& inputs) {
  check_results(kind, inputs);
  Json notebook = {
      {"cells", Json::array()},
      {"metadata",
       {{"kernelspec", {{"display_name", "Python 3"}, {"language", "python"}, {"name", "python3"}}},
        {"language_info", {{"name", "python"}}}}},
      {"nbformat", 4},
      {"nbformat_minor", 5}};
  for (NotebookCell& cell : cells_of(kind.source)) {
    const bool is_parameters = cell.id == kParameters;
    if (is_parameters) {
      cell.source = fmt::format(
          "RESULTS = {}  # of {}; relative to this notebook\n"
          "TRACES = {}  # the recorded traces, as the first result has them, if any\n"
          "EXPECTED = {}  # what these files were when the notebook was written\n"
          "WRITTEN_BY = {}{}{}",
          json_text(paths_of(inputs.results)), fmt::join(kind.result_kinds, ", "),
          json_text(paths_of(inputs.traces)), json_text(expected_of(inputs)),
          json_text(inputs.writer), cell.source.empty() ? "" : "\n", cell.source);
    }
    notebook["cells"].push_back(cell_json(cell));
    if (!is_parameters) continue;
    for (const NotebookCell& shared : cells_of(built_in_text(notebook_sources(), "common")))
      notebook["cells"].push_back(cell_json(shared));
  }
  return json_text(notebook, 1) + "\n";
}

}  // namespace kvscope

#include "notebooks_export/notebook_kinds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"
#include "notebooks_export/notebook.hpp"

namespace kvscope {

namespace {

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

}  // namespace

const std::vector<NotebookKind>& notebook_kinds() {
  static const std::vector<NotebookKind> kinds = {
      {"geometry",
       "where queries and keys lie, and S_q against the largest attention weight",
       {"geometry", "query-selection", "quoka"},
       notebook_source("geometry")},
      {"recall",
       "attention kept, recall and output error of a sweep's selectors by budget and bytes",
       {"sweep"},
       notebook_source("recall")},
      {"coverage",
       "what a selection keeps per layer and head, and which pages each step reads",
       {"coverage", "quest"},
       notebook_source("coverage")},
      {"bounds",
       "Theorem B.1 and Quest's page bounds against measured values",
       {"theorem-b1", "quest"},
       notebook_source("bounds")},
      {"layer-map",
       "KL divergence of all layer pairs, and SpecAttn's layer map",
       {"layer-map"},
       notebook_source("layer_map")},
      {"simulation",
       "perplexity, retrieval and speculative decoding with a selector inside the model",
       {"simulate-perplexity", "simulate-retrieval", "simulate-passkey", "simulate-needle",
        "simulate-ruler", "simulate-speculative"},
       notebook_source("simulation")},
  };
  return kinds;
}

const NotebookKind& find_notebook_kind(std::string_view name) {
  std::vector<std::string> names;
  for (const NotebookKind& kind : notebook_kinds()) {
    if (kind.name == name) return kind;
    names.push_back(kind.name);
  }
  throw ConfigError("there is no notebook {}: expected one of {}", quote(name),
                    fmt::join(names, ", "));
}

std::string make_notebook(const NotebookKind& kind, const NotebookInputs& inputs) {
  check_results(kind, inputs);
  std::vector<NotebookCell> cells;
  for (NotebookCell& cell : parse_notebook_cells(kind.source, kind.name)) {
    const bool is_parameters =
        std::find(cell.tags.begin(), cell.tags.end(), "parameters") != cell.tags.end();
    if (!is_parameters) {
      cells.push_back(std::move(cell));
      continue;
    }
    set_notebook_parameter(cell, "RESULTS", paths_of(inputs.results));
    set_notebook_parameter(cell, "TRACES", paths_of(inputs.traces));
    set_notebook_parameter(cell, "EXPECTED", expected_of(inputs));
    set_notebook_parameter(cell, "WRITTEN_BY", inputs.writer);
    cells.push_back(std::move(cell));
    for (NotebookCell& shared : parse_notebook_cells(notebook_source("common"), "common"))
      cells.push_back(std::move(shared));
  }
  return notebook_text(cells);
}

}  // namespace kvscope

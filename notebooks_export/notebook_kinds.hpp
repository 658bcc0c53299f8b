// The notebooks that kvscope writes: which results each is about, and how its cells are put
// together.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvscope {

struct NotebookKind {
  std::string name;                       // "recall"
  std::string summary;                    // one line without a full stop
  std::vector<std::string> result_kinds;  // results it shows; any one of them is enough
  std::string_view source;                // its Python cells
};

/// geometry, recall, coverage, bounds, layer-map, simulation.
const std::vector<NotebookKind>& notebook_kinds();

/// A file that a notebook opens, and what it was when the notebook was written.
struct NotebookFile {
  std::string path;  // relative to the notebook's folder
  std::string kind;  // of results: "quest"; empty for traces
  std::string id;    // configuration hash of a result, uuid of a trace (empty while it is recorded)
  std::string hash;  // content hash of a trace, empty for results
};

struct NotebookInputs {
  std::vector<NotebookFile> results;  // at least one, of kinds that the notebook shows
  std::vector<NotebookFile> traces;   // in the order in which the first result names them
  std::string writer;                 // "kvscope 0.1.0 (commit)"
};

/// The text of the notebook: the kind's title, parameters, the cells that all kinds share
/// (versions, identity of the files, reading tensors), then the kind's own. Throws ConfigError for
/// a result of a kind that this notebook does not show, or none.
std::string make_notebook(const NotebookKind& kind, const NotebookInputs& inputs);

}  // namespace kvscope

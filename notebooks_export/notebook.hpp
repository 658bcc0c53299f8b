// Jupyter notebooks (nbformat 4.5) from readable Python files: cells, ids, tags, parameters. Text
// only, nothing is executed, equal input gives equal bytes.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace kvscope {

struct NotebookCell {
  bool is_code = true;
  std::string id;                 // letters, digits, - and _; unique in its notebook
  std::vector<std::string> tags;  // "parameters": what papermill replaces
  std::string source;             // without a final line break
};

/// Cells of a Python file. A cell begins with "# %% ID" (code) or "# %% [markdown] ID", with tags
/// behind as "tags=a,b"; lines of a markdown cell are comments. What stands before the first marker
/// belongs to the file, not to the notebook. Throws FormatError naming file and line for a marker
/// that cannot be read or an id used twice.
std::vector<NotebookCell> parse_notebook_cells(std::string_view text, const std::string& where);

/// Replaces the line "NAME = ..." of a cell by a Python literal of `value`, a comment behind it is
/// kept. Throws ConfigError if the cell has no such line.
void set_notebook_parameter(NotebookCell& cell, std::string_view name,
                            const nlohmann::ordered_json& value);

/// The file's text: Python 3 kernel, no outputs, no execution counts. Throws ConfigError for two
/// cells of the same id.
std::string notebook_text(const std::vector<NotebookCell>& cells);

}  // namespace kvscope

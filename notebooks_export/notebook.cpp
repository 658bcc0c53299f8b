#include "notebooks_export/notebook.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"

namespace kvscope {

namespace {

constexpr std::string_view kMarker = "# %%";
constexpr std::size_t kMaxIdLength = 64;  // nbformat 4.5

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(separator, at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

bool is_id(std::string_view text) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
  };
  return !text.empty() && text.size() <= kMaxIdLength &&
         std::all_of(text.begin(), text.end(), allowed);
}

/// "# %% [markdown] intro tags=a,b" without a source.
NotebookCell parse_marker(std::string_view line, const std::string& where) {
  NotebookCell cell;
  for (const std::string_view word : split(line.substr(kMarker.size()), ' ')) {
    if (word.empty()) continue;
    if (word == "[markdown]") {
      cell.is_code = false;
    } else if (word.starts_with("tags=")) {
      for (const std::string_view tag : split(word.substr(5), ',')) cell.tags.emplace_back(tag);
    } else if (cell.id.empty() && is_id(word)) {
      cell.id = word;
    } else {
      throw FormatError("{}: expected \"# %% [markdown] ID tags=A,B\", found {}", where,
                        quote(line));
    }
  }
  if (cell.id.empty()) throw FormatError("{}: the cell has no id", where);
  return cell;
}

/// A comment's text.
std::string_view uncomment(std::string_view line, const std::string& where) {
  if (line.empty()) return line;
  if (!line.starts_with('#'))
    throw FormatError("{}: expected a comment in a markdown cell, found {}", where, quote(line));
  line.remove_prefix(1);
  if (line.starts_with(' ')) line.remove_prefix(1);
  return line;
}

void trim_blank_ends(std::string& source) {
  const std::size_t first = source.find_first_not_of('\n');
  source.erase(0, std::min(first, source.size()));
  while (source.ends_with('\n') || source.ends_with(' ')) source.pop_back();
}

/// JSON is a Python literal except for its three words.
std::string python_literal(const Json& value) {
  if (value.is_null()) return "None";
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_object() || value.is_array()) {
    std::vector<std::string> parts;
    for (const auto& [key, element] : value.items()) {
      const std::string literal = python_literal(element);
      parts.push_back(value.is_array() ? literal
                                       : fmt::format("{}: {}", python_literal(Json(key)), literal));
    }
    return fmt::format("{}{}{}", value.is_array() ? "[" : "{", fmt::join(parts, ", "),
                       value.is_array() ? "]" : "}");
  }
  return value.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

/// nbformat keeps a source as its lines, each with its line break but the last.
Json lines_of(const std::string& source) {
  Json lines = Json::array();
  const auto parts = split(source, '\n');
  for (std::size_t i = 0; i < parts.size(); ++i) {
    lines.push_back(std::string(parts[i]) + (i + 1 < parts.size() ? "\n" : ""));
  }
  return lines;
}

}  // namespace

std::vector<NotebookCell> parse_notebook_cells(std::string_view text, const std::string& where) {
  std::vector<NotebookCell> cells;
  std::set<std::string> ids;
  std::size_t number = 0;
  for (const std::string_view line : split(text, '\n')) {
    const std::string place = fmt::format("{}: line {}", where, ++number);
    if (line.starts_with(kMarker)) {
      cells.push_back(parse_marker(line, place));
      if (!ids.insert(cells.back().id).second)
        throw FormatError("{}: cell id {} is used twice", place, cells.back().id);
      continue;
    }
    if (cells.empty()) continue;
    NotebookCell& cell = cells.back();
    cell.source += cell.is_code ? line : uncomment(line, place);
    cell.source += '\n';
  }
  for (NotebookCell& cell : cells) trim_blank_ends(cell.source);
  return cells;
}

void set_notebook_parameter(NotebookCell& cell, std::string_view name, const Json& value) {
  const std::string start = fmt::format("{} = ", name);
  std::size_t at = cell.source.starts_with(start) ? 0 : cell.source.find("\n" + start);
  if (at == std::string::npos)
    throw ConfigError("cell {} has no parameter {}", quote(cell.id), quote(name));
  if (cell.source[at] == '\n') ++at;
  const std::size_t end = std::min(cell.source.find('\n', at), cell.source.size());
  const std::size_t comment = std::min(cell.source.find("  # ", at), end);
  cell.source.replace(at, comment - at, start + python_literal(value));
}

std::string notebook_text(const std::vector<NotebookCell>& cells) {
  Json notebook;
  notebook["cells"] = Json::array();
  std::set<std::string> ids;
  for (const NotebookCell& cell : cells) {
    if (!is_id(cell.id) || !ids.insert(cell.id).second)
      throw ConfigError("notebook cell id {} is empty, not an id, or used twice", quote(cell.id));
    Json metadata = Json::object();
    if (!cell.tags.empty()) metadata["tags"] = cell.tags;
    Json json;
    json["cell_type"] = cell.is_code ? "code" : "markdown";
    if (cell.is_code) json["execution_count"] = nullptr;
    json["id"] = cell.id;
    json["metadata"] = metadata;
    if (cell.is_code) json["outputs"] = Json::array();
    json["source"] = lines_of(cell.source);
    notebook["cells"].push_back(std::move(json));
  }
  notebook["metadata"] = {
      {"kernelspec", {{"display_name", "Python 3"}, {"language", "python"}, {"name", "python3"}}},
      {"language_info", {{"name", "python"}}}};
  notebook["nbformat"] = 4;
  notebook["nbformat_minor"] = 5;
  return notebook.dump(1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

}  // namespace kvscope

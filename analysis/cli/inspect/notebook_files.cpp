#include "analysis/cli/inspect/notebook_files.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "core/trace/result.hpp"
#include "notebooks_export/open_result.hpp"
#include "traces/reader.hpp"
#include "traces/result_file.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

namespace {

std::string relative_to(const fs::path& file, const fs::path& notebook) {
  const fs::path folder = fs::absolute(notebook).parent_path();
  return fs::absolute(file)
      .lexically_normal()
      .lexically_proximate(folder.lexically_normal())
      .generic_string();
}

/// A trace that the results are about.
struct WantedTrace {
  std::string uuid;
  std::string hash;
  fs::path name;           // as the result has it
  fs::path result_folder;  // where that result lies
};

struct OpenTrace {
  fs::path file;
  NotebookFile entry;
};

OpenTrace open_trace(const fs::path& file, const fs::path& notebook) {
  OpenOptions options{.allow_partial = true};
  const TraceFile trace = TraceFile::open(file, options);
  const TraceInfo& info = trace.info();
  OpenTrace open{.file = file,
                 .entry = {relative_to(file, notebook), "", info.uuid, info.content_hash}};
  if (info.status == TraceStatus::recording) open.entry.id = open.entry.hash = "";
  return open;
}

/// The file that a result means, if it is there and is that trace.
std::optional<OpenTrace> find_trace(const WantedTrace& wanted, const fs::path& notebook) {
  for (const fs::path& file : {wanted.name, wanted.result_folder / wanted.name,
                               wanted.result_folder / wanted.name.filename()}) {
    std::error_code error;
    if (!fs::is_regular_file(file, error)) continue;
    OpenTrace trace = open_trace(file, notebook);
    if (trace.entry.id == wanted.uuid) return trace;
  }
  return std::nullopt;
}

/// A simulation's CSV or JSON: its task and configuration are columns.
NotebookFile table_result(const fs::path& file, const fs::path& notebook) {
  const Table table = read_rows(file);
  const TableColumn* task = table.find("task");
  const TableColumn* hash = table.find("config_hash");
  if (!task || !hash || !task->is_text || table.n_rows() == 0) {
    throw FormatError(
        "{}: expected a result (HDF5) or the CSV or JSON of a simulation with columns task and "
        "config_hash; kvscope sweep and kvscope analyze write HDF5 with --out NAME.h5",
        file.string());
  }
  return {relative_to(file, notebook), "simulate-" + task->cell(0), hash->cell(0), ""};
}

}  // namespace

NotebookInputs notebook_inputs(const std::vector<fs::path>& results,
                               const std::vector<fs::path>& traces, const fs::path& notebook) {
  NotebookInputs inputs;
  std::vector<WantedTrace> wanted;
  for (const fs::path& file : results) {
    if (file.extension() == ".csv" || file.extension() == ".json") {
      inputs.results.push_back(table_result(file, notebook));
      continue;
    }
    const ResultFile result = ResultFile::open(file);
    const ResultInfo& info = result.info();
    inputs.results.push_back({relative_to(file, notebook), info.kind, info.config_hash, ""});
    for (std::size_t i = 0; i < info.trace_uuids.size(); ++i) {
      const auto known = [&](const WantedTrace& other) {
        return other.uuid == info.trace_uuids[i];
      };
      if (std::ranges::any_of(wanted, known)) continue;
      wanted.push_back(
          {info.trace_uuids[i], i < info.trace_hashes.size() ? info.trace_hashes[i] : "",
           i < info.trace_files.size() ? info.trace_files[i] : "", file.parent_path()});
    }
  }

  std::vector<OpenTrace> given;
  for (const fs::path& file : traces) given.push_back(open_trace(file, notebook));
  std::vector<bool> used(given.size(), false);
  for (const WantedTrace& trace : wanted) {
    std::optional<OpenTrace> found;
    for (std::size_t i = 0; i < given.size() && !found; ++i) {
      const bool fits = given[i].entry.id.empty() ? !used[i] : given[i].entry.id == trace.uuid;
      if (!fits) continue;
      found = given[i];
      used[i] = true;
    }
    if (!found) found = find_trace(trace, notebook);
    if (found) {
      inputs.traces.push_back(found->entry);
    } else {
      inputs.traces.push_back({relative_to(trace.result_folder / trace.name.filename(), notebook),
                               "", trace.uuid, trace.hash});
    }
  }
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (used[i]) continue;
    throw ConfigError("--trace: no result is about {} (uuid {})", given[i].file.string(),
                      given[i].entry.id);
  }
  return inputs;
}

}  // namespace kvscope::cli

// kvscope notebook: a Jupyter notebook that checks and draws results.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "analysis/base/mapped.hpp"
#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/frame/save_text.hpp"
#include "core/base/error.hpp"
#include "core/base/suggest.hpp"
#include "core/base/version.hpp"
#include "core/trace/result.hpp"
#include "notebooks_export/notebook_kinds.hpp"
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

/// Opens every result and finds its traces: `traces` if given (by uuid, or by place for partial
/// ones), else the file that the result names, as it stands or beside the result. A trace that is
/// not there is left out of nothing: its expected place is written, and the notebook says so and
/// skips what needs it. Paths come out relative to the folder of `notebook`. Throws IoError or
/// FormatError for unreadable files, ConfigError for a trace that no result is about.
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

class NotebookCommand final : public Command {
 public:
  CommandCard card() const override {
    std::vector<std::string> kinds;
    for (const NotebookKind& kind : notebook_kinds())
      kinds.push_back(fmt::format("{} ({}; from {})", kind.name, kind.summary,
                                  fmt::join(kind.result_kinds, ", ")));
    return {
        "notebook",
        "a Jupyter notebook that checks and draws results",
        fmt::format(
            "Writes nbformat 4.5 without outputs; it needs h5py and numpy and runs under "
            "jupyter nbconvert --execute. The first cells check versions and that the files are "
            "the ones it was written about; then it recomputes numbers in NumPy, asserts that "
            "they equal the program's, and draws the figures. Paths in it are relative to its "
            "folder. Traces are searched where the result says, then next to the result; a "
            "partial trace (.part) may be "
            "named with --trace. Kinds: {}.",
            fmt::join(kinds, "; ")),
        {{"kvscope notebook bounds theorem-b1.h5 quest.h5 --out bounds.ipynb",
          "both bounds in one notebook"},
         {"kvscope notebook recall sweep.h5 --trace trace.h5 --out recall.ipynb",
          "a sweep whose trace is elsewhere"}}};
  }
  void declare(OptionSet& options) override {
    OptionSpec& kind = options.positional("KIND", "what it is about", kind_, /*required=*/true);
    for (const NotebookKind& each : notebook_kinds()) kind.choices.push_back(each.name);
    options
        .positional("RESULT", "what analyze, sweep or simulate wrote", results_,
                    /*required=*/true)
        .of(kinds_of_results());
    options.add("trace", "FILE", "a trace of the results [found by its name]", traces_);
    options.add("out", "FILE", "the notebook [KIND.ipynb]", out_).short_name = 'o';
    options.flag("overwrite", "replace an existing file", overwrite_);
  }

  int run(const OptionSet&, const std::string&) override {
    const NotebookKind& kind = chosen_kind();
    const fs::path out = out_ ? *out_ : fs::path(kind.name + ".ipynb");
    if (out.extension() != ".ipynb")
      throw UsageError("--out: expected a file name that ends in .ipynb, found {}", out.string());
    check_new_output(out, overwrite_);
    NotebookInputs inputs = notebook_inputs(results_, traces_, out);
    inputs.writer = writer_name();
    write_new_file(out, make_notebook(kind, inputs), overwrite_);
    for (const NotebookFile& trace : inputs.traces) {
      if (trace.id.empty())
        note("kvscope: {} is a partial trace: the notebook uses its whole calls", trace.path);
    }
    note("kvscope: run it with: jupyter nbconvert --execute --to html {}",
         shell_word(out.string()));
    return kOk;
  }

 private:
  const NotebookKind& chosen_kind() const {
    const auto at = std::ranges::find(notebook_kinds(), kind_, &NotebookKind::name);
    if (at != notebook_kinds().end()) return *at;
    const auto names = mapped<std::string>(notebook_kinds(), &NotebookKind::name);
    throw UsageError("KIND: expected one of {}, found \"{}\"{}", fmt::join(names, ", "), kind_,
                     did_you_mean(kind_, names));
  }

  std::string kind_;
  std::vector<fs::path> results_;
  std::vector<fs::path> traces_;
  std::optional<fs::path> out_;
  bool overwrite_ = false;
};

}  // namespace

KVSCOPE_COMMAND(640, NotebookCommand)

}  // namespace kvscope::cli

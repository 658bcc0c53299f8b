// kvscope notebook: a Jupyter notebook that checks and draws results.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "analysis/base/mapped.hpp"
#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/frame/save_text.hpp"
#include "analysis/cli/inspect/notebook_files.hpp"
#include "core/base/suggest.hpp"
#include "core/base/version.hpp"
#include "notebooks_export/notebook_kinds.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

namespace {

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
    options.positional("RESULT", "what analyze, sweep or simulate wrote", results_,
                       /*required=*/true);
    options.add("trace", "FILE", "a trace of the results [found by its name]", traces_);
    options.add("out", "FILE", "the notebook [KIND.ipynb]", out_).short_name = 'o';
    options.flag("overwrite", "replace an existing file", overwrite_);
  }

  int run(const OptionSet&, const std::string&) override {
    const NotebookKind& kind = chosen_kind();
    const fs::path out = out_ ? *out_ : fs::path(kind.name + ".ipynb");
    if (out.extension() != ".ipynb")
      throw UsageError("--out: expected a file name that ends in .ipynb, found {}", out.string());
    check_new_output(out, overwrite_, "--overwrite");
    NotebookInputs inputs = notebook_inputs(results_, traces_, out);
    inputs.writer = writer_name();
    save_text(out, make_notebook(kind, inputs), overwrite_);
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
    const auto names = mapped<std::string>(notebook_kinds(), &NotebookKind::name);
    if (std::ranges::find(names, kind_) == names.end()) {
      throw UsageError("KIND: expected one of {}, found \"{}\"{}", fmt::join(names, ", "), kind_,
                       did_you_mean(kind_, names));
    }
    return find_notebook_kind(kind_);
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

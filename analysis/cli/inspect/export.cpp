// kvscope export: a trace, or a session of the window, as a page that a co-author opens without
// installing anything.
#include <fmt/format.h>

#include <filesystem>

#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/common_options.hpp"
#include "analysis/cli/frame/list_options.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/frame/save_text.hpp"
#include "analysis/cli/frame/signals.hpp"
#include "core/base/file_kind.hpp"
#include "core/base/number_text.hpp"
#include "core/base/read_files.hpp"
#include "core/base/shell_word.hpp"
#include "notebooks_export/html_page.hpp"
#include "traces/reader.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

namespace {

/// A session is JSON; traces are HDF5. A pipe can be a session alone.
bool is_session(const fs::path& file) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return file == "-" || fs::is_fifo(file, error);
  const FileKind kind = kind_of_file(file);
  return kind == FileKind::json || kind == FileKind::own_json || kind == FileKind::session;
}

class ExportCommand final : public Command {
 public:
  CommandCard card() const override {
    return {"export",
            "a trace, or a session of the window, as one HTML page",
            "Writes one page that needs no network and no other file. Of a trace: the attention "
            "maps of all heads with pan, zoom and hover (weight, query and key with their texts), "
            "and an atlas that is ordered by distance, entropy, sink, local or retrieval share. "
            "Of a session that kvscope-explorer saved: a step for each bookmark, with map and text "
            "of its head and a switch between the methods whose kept keys they show, and a figure "
            "of each result. Weights are recomputed exactly and stored in 16 bits on a logarithmic "
            "scale (relative error below 2e-4). Long contexts are pooled until the page is below "
            "--max-size; fewer --layers or --heads make finer maps.",
            {{"kvscope export --html trace.h5 --out trace.html", "all heads, below 10 MB"},
             {"kvscope export --html trace.h5 --layers 5 --heads 4,6 --out heads.html",
              "two heads, every weight of a 2k-token trace"},
             {"kvscope export --html session.json --out session.html",
              "the bookmarks and results of a saved session of the window"}}};
  }
  void declare(OptionSet& options) override {
    options
        .positional("TRACE", "a recorded trace, or a saved session of kvscope-explorer (.json)",
                    input_, /*required=*/true)
        .of({FileKind::trace, FileKind::session, FileKind::json, FileKind::own_json});
    options.flag("html", "write a page: what is done anyway, since there is one format", html_);
    options.add("out", "FILE", "the page to write (.html)", out_).short_name = 'o';
    selection_.declare(options);
    options.fields(options_);
    options.flag("overwrite", "replace an existing file", overwrite_);
    work_.declare(options);
    declare_json(options, json_);
  }

  int run(const OptionSet&, const std::string&) override {
    if (out_.empty()) throw UsageError("--out is missing: the page goes to a file");
    if (out_.extension() != ".html" && out_.extension() != ".htm")
      throw UsageError("--out: expected the name of a page, which ends in .html, found {}",
                       shell_word(out_.string()));
    check_new_output(out_, overwrite_);
    const TraceSelection selection = selection_.selection();
    const int n_threads = work_.n_threads();
    const bool of_session = is_session(input_);
    if (of_session && !(selection.layers.empty() && selection.q_heads.empty())) {
      throw UsageError(
          "--layers and --heads choose from a trace; the bookmarks of a session name their own");
    }
    const TraceOpener open = [this](const fs::path& file) { return open_trace(file); };
    const PageContent content =
        of_session ? page_of_session(input_, open) : atlas_of_trace(input_, selection, open);
    refuse_read_file(out_);
    const StopOnSignal stop;
    ThreadPool pool(n_threads);
    HtmlPage page;
    {
      ProgressReporter progress(work_.progress);
      page = make_html_page(content, options_, pool, progress.callback(), stop.token());
    }
    for (const std::string& sentence : page.notes) note("kvscope: " + sentence);
    write_new_file(out_, page.html, overwrite_);
    report(content, page);
    return kOk;
  }

 private:
  std::shared_ptr<const TraceSource> open_trace(const fs::path& file) {
    const auto trace = std::make_shared<const TraceFile>(TraceFile::open(file));
    refuse_read_file(out_);
    for (const auto& warning : trace->warnings()) note("kvscope: {}: {}", file.string(), warning);
    return trace;
  }

  void report(const PageContent& content, const HtmlPage& page) const {
    if (json_) {
      print_json({{"file", out_.string()},
                  {"heads", content.heads.size()},
                  {"steps", content.steps.size()},
                  {"figures", content.results.size()},
                  {"cells", page.n_cells},
                  {"block", page.block},
                  {"bytes", page.html.size()}});
      return;
    }
    const std::string steps = content.atlas
                                  ? ""
                                  : fmt::format("{} bookmarks, {} results, ", content.steps.size(),
                                                content.results.size());
    print("{}: {}{} heads, {} x {} cells of {} x {} weights, {}\n", out_.string(), steps,
          content.heads.size(), page.n_cells, page.n_cells, page.block, page.block,
          bytes_text(static_cast<double>(page.html.size())));
  }

  fs::path input_;
  fs::path out_;
  SelectionOptions selection_;
  HtmlPageOptions options_;
  WorkOptions work_;
  bool html_ = false;
  bool overwrite_ = false;
  bool json_ = false;
};

}  // namespace

KVSCOPE_COMMAND(650, ExportCommand)

}  // namespace kvscope::cli

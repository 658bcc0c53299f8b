// kvscope export: a trace as a page that a co-author opens without installing anything.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "analysis/cli/command.hpp"
#include "analysis/cli/common_options.hpp"
#include "analysis/cli/output.hpp"
#include "analysis/cli/save_text.hpp"
#include "analysis/cli/selection_options.hpp"
#include "analysis/cli/signals.hpp"
#include "core/base/number_text.hpp"
#include "core/base/read_files.hpp"
#include "core/base/version.hpp"
#include "notebooks_export/attention_page.hpp"
#include "traces/reader.hpp"

namespace kvscope::cli {
namespace {

namespace fs = std::filesystem;

class ExportCommand final : public Command {
 public:
  std::string name() const override { return "export"; }
  std::string summary() const override { return "a trace as one HTML page with all its maps"; }
  std::string description() const override {
    return "Writes one page that needs no network and no other file: the attention maps of all "
           "heads with pan, zoom and hover (weight, query and key with their texts), and an atlas "
           "that is ordered by distance, entropy, sink, local or retrieval share. Weights are "
           "recomputed exactly and stored in 16 bits on a logarithmic scale (relative error below "
           "2e-4). Long contexts are pooled until the page is below --max-size; fewer --layers or "
           "--heads make finer maps.";
  }
  std::vector<Example> examples() const override {
    return {{"kvscope export --html trace.h5 --out trace.html", "all heads, below 16 MB"},
            {"kvscope export --html trace.h5 --layers 5 --heads 4,6 --out heads.html",
             "two heads, every weight of a 2k-token trace"}};
  }
  void declare(OptionSet& options) override {
    options.positional("TRACE", "the recorded trace", trace_, /*required=*/true);
    options.flag("html", "write a page: what is done anyway, since there is one format", html_);
    options.add("out", "FILE", "the page to write (.html)", out_).short_name = 'o';
    selection_.declare(options);
    options.fields(options_);
    options.flag("overwrite", "replace an existing file", overwrite_);
    work_.declare(options);
    declare_json(options, json_);
  }

  int run(const OptionSet&, const std::string& command_line) override {
    if (!out_) throw UsageError("--out is missing: the page goes to a file");
    check_new_output(*out_, overwrite_, "--overwrite");
    options_.selection = selection_.selection();
    const int n_threads = work_.n_threads();
    const TraceFile trace = TraceFile::open(trace_);
    refuse_read_file(*out_);
    for (const auto& warning : trace.warnings())
      note(fmt::format("kvscope: {}: {}", trace_.string(), warning));
    const StopOnSignal stop;
    ThreadPool pool(n_threads);
    AttentionPage page;
    {
      ProgressReporter progress(work_.progress);
      page = make_attention_page(trace, options_, pool, progress.callback(), stop.token(),
                                 {command_line, writer_name(), ""});
    }
    save_text(*out_, page.html, overwrite_);
    if (json_) {
      print_json({{"file", out_->string()},
                  {"heads", page.n_heads},
                  {"cells", page.n_cells},
                  {"block", page.block},
                  {"bytes", page.html.size()}});
    } else {
      print(fmt::format("{}: {} heads, {} x {} cells of {} x {} weights, {}\n", out_->string(),
                        page.n_heads, page.n_cells, page.n_cells, page.block, page.block,
                        bytes_text(static_cast<double>(page.html.size()))));
    }
    return kOk;
  }

 private:
  fs::path trace_;
  std::optional<fs::path> out_;
  SelectionOptions selection_;
  AttentionPageOptions options_;
  WorkOptions work_;
  bool html_ = false;
  bool overwrite_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_export_command() {
  return std::make_unique<ExportCommand>();
}

}  // namespace kvscope::cli

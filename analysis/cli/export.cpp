// kvscope export: a trace as a page that a co-author opens without installing anything.
#include <map>

#include "analysis/cli/kit.hpp"
#include "analysis/cli/selection_options.hpp"
#include "core/base/read_files.hpp"
#include "notebooks_export/story_page.hpp"
#include "traces/reader.hpp"

namespace kvscope::cli {
namespace {

class ExportCommand final : public Command {
 public:
  CommandCard card() const override {
    return {"export",
            "a trace or a story about traces as one HTML page",
            "Writes one page that needs no network and no other file. Of a trace: the attention "
            "maps of all heads with pan, zoom and hover (weight, query and key with their texts), "
            "and an atlas that is ordered by distance, entropy, sink, local or retrieval share. "
            "Of a story (--story, a JSON file that notebooks_export/stories/README.md explains, "
            "or a session of kvscope-explorer with bookmarks): its steps one after another, with "
            "notes, arrows and boxes over maps, texts and figures, and the keys that methods "
            "keep. Weights are recomputed exactly and stored in 16 bits on a logarithmic scale "
            "(relative error below 2e-4). Long contexts are pooled until the page is below "
            "--max-size; fewer --layers or --heads, or parts of the context, make finer maps.",
            {{"kvscope export --html trace.h5 --out trace.html", "all heads, below 10 MB"},
             {"kvscope export --html trace.h5 --layers 5 --heads 4,6 --out heads.html",
              "two heads, every weight of a 2k-token trace"},
             {"kvscope export --story story.json --out story.html",
              "steps with notes, maps, texts and figures"},
             {"kvscope export --story session.json --out story.html",
              "the bookmarks of a saved session of the window"}}};
  }
  void declare(OptionSet& options) override {
    options.positional("TRACE", "the recorded trace, without --story", trace_,
                       /*required=*/false);
    options.flag("html", "write a page: what is done anyway, since there is one format", html_);
    options.add("story", "FILE", "a story, or a saved session with bookmarks (.json)", story_);
    options.add("out", "FILE", "the page to write (.html)", out_).short_name = 'o';
    selection_.declare(options);
    options.fields(options_);
    options.flag("overwrite", "replace an existing file", overwrite_);
    work_.declare(options);
    declare_json(options, json_);
  }

  int run(const OptionSet&, const std::string& command_line) override {
    if (trace_.has_value() == story_.has_value()) {
      throw UsageError(trace_ ? "a story names its traces itself: leave TRACE out, or --story"
                              : "TRACE is missing: a recorded trace, or --story FILE");
    }
    if (!out_) throw UsageError("--out is missing: the page goes to a file");
    check_new_output(*out_, overwrite_, "--overwrite");
    const TraceSelection selection = selection_.selection();
    if (story_ && !(selection.layers.empty() && selection.q_heads.empty()))
      throw UsageError("--layers and --heads choose from a trace; a story's steps name their own");
    const int n_threads = work_.n_threads();
    const Story story =
        story_ ? read_story(*story_) : atlas_story(*open_trace(*trace_), *trace_, selection);
    if (out_) refuse_read_file(*out_);
    const StopOnSignal stop;
    ThreadPool pool(n_threads);
    const TraceOpener open = [this](const fs::path& file) { return open_trace(file); };
    Json said;
    if (out_) {
      StoryPage page;
      {
        ProgressReporter progress(work_.progress);
        page = make_story_page(story, options_, open, pool, progress.callback(), stop.token(),
                               {command_line, writer_name(), ""});
      }
      for (const std::string& sentence : page.notes) note("kvscope: " + sentence);
      save_text(*out_, page.html, overwrite_);
      report(story, page, said);
    }
    if (json_) print_json(said);
    return kOk;
  }

 private:
  std::shared_ptr<const TraceSource> open_trace(const fs::path& file) {
    if (const auto open = opened_.find(file); open != opened_.end()) return open->second;
    const auto trace = std::make_shared<const TraceFile>(TraceFile::open(file));
    if (out_) refuse_read_file(*out_);
    for (const auto& warning : trace->warnings()) note("kvscope: {}: {}", file.string(), warning);
    opened_[file] = trace;
    return trace;
  }

  void report(const Story& story, const StoryPage& page, Json& said) const {
    said = {{"file", out_->string()},
            {"heads", page.n_heads},
            {"cells", page.n_cells},
            {"block", page.block},
            {"bytes", page.html.size()}};
    if (story_) said["steps"] = story.steps.size();
    if (json_) return;
    const std::string what =
        story_
            ? fmt::format("{} {}", story.steps.size(), story.steps.size() == 1 ? "step" : "steps")
            : fmt::format("{} heads, {} x {} cells of {} x {} weights", page.n_heads, page.n_cells,
                          page.n_cells, page.block, page.block);
    print("{}: {}, {}\n", out_->string(), what, bytes_text(static_cast<double>(page.html.size())));
  }

  std::optional<fs::path> trace_;
  std::optional<fs::path> story_;
  std::optional<fs::path> out_;
  SelectionOptions selection_;
  StoryPageOptions options_;
  WorkOptions work_;
  std::map<fs::path, std::shared_ptr<const TraceFile>> opened_;
  bool html_ = false;
  bool overwrite_ = false;
  bool json_ = false;
};

}  // namespace

KVSCOPE_COMMAND(760, ExportCommand)

}  // namespace kvscope::cli

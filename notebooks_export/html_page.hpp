// A trace, or the bookmarks and results of a session, as one HTML page that needs nothing else: no
// network, no other file; what is text in them is text in the page.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analysis/base/trace_selection.hpp"
#include "core/base/fields.hpp"
#include "core/base/progress.hpp"
#include "notebooks_export/page_head.hpp"

namespace kvscope {

struct HtmlPageOptions {
  Index max_cells = option(
      max_cells, "max-cells", 0,
      "most cells per side of a map; longer contexts are pooled in equal blocks; 0: as many as "
      "--max-size allows",
      in(0.0, 4096.0));
  double max_size = option(max_size, "max-size", 10.0,
                           "size of the page, in MB: more heads make coarser maps", in(0.5, 512.0));
  MapPooling pooling = option(pooling, "pooling", MapPooling::max,
                              "a cell shows the max or the mean of its weights");
  std::string needle =
      option(needle, "needle", "", "positions of the retrieval score, as in kvscope analyze heads");
};

struct PageTrace {
  std::filesystem::path path;
  std::shared_ptr<const TraceSource> source;
};

/// A place in a head, which is held when the step opens.
struct PageStep {
  std::string title;
  std::string note;                   // plain text
  std::size_t head = 0;               // among the page's
  std::optional<std::size_t> method;  // among the head's
  Index query = 0;
  std::optional<Index> key;
};

struct PageContent {
  std::string title;
  std::vector<PageTrace> traces;
  std::vector<PageHead> heads;          // their grids are chosen by make_html_page
  std::optional<TraceSelection> atlas;  // all heads beside one map; without steps
  std::vector<PageStep> steps;
  std::vector<std::filesystem::path> results;  // a figure of each
  PageReplay replay;
};

struct HtmlPage {
  std::string html;
  Index n_cells = 0;               // per side of the largest map
  Index block = 1;                 // its cells' side in tokens
  std::vector<std::string> notes;  // sentences: what a method does not answer, what has no figure
};

using TraceOpener =
    std::function<std::shared_ptr<const TraceSource>(const std::filesystem::path& trace)>;

/// All chosen heads of a trace: what `kvscope export --html TRACE` shows. Throws ConfigError for
/// heads that the trace does not hold, and what `open` throws.
PageContent atlas_of_trace(const std::filesystem::path& file, const TraceSelection& selection,
                           const TraceOpener& open);

/// A saved session of kvscope-explorer, or a view that it exported: a step for each bookmark, a
/// figure for each result. Names of files in it are relative to its folder. Throws FormatError (the
/// file, the field, what was expected and found) for what is no session, holds neither, or names a
/// place that its trace does not hold; IoError, and what `open` throws.
PageContent page_of_session(const std::filesystem::path& file, const TraceOpener& open);

/// Throws ConfigError for options out of range, maps that do not fit into max_size, or figures that
/// cannot be drawn; IoError for results; Interrupted on a stop.
HtmlPage make_html_page(PageContent content, const HtmlPageOptions& options, ThreadPool& pool,
                        const ProgressFn& progress, const std::stop_token& stop);

}  // namespace kvscope

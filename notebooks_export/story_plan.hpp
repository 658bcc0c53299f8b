// What a page of a story holds: which maps, at which fineness, which words' reads, which methods;
// decided before anything is computed, so that the page keeps its size.
#pragma once

#include "core/base/fields.hpp"
#include "core/base/vocabulary.hpp"
#include "notebooks_export/story.hpp"
#include "notebooks_export/story_cells.hpp"

namespace kvscope {

struct StoryPageOptions {
  Index max_cells = option(
      max_cells, "max-cells", 0,
      "most cells per side of a map; longer contexts are pooled in equal blocks; 0: as many as "
      "--max-size allows",
      in(0.0, 16384.0));
  double max_size = option(max_size, "max-size", 10.0,
                           "size of the page, in MB: more heads make coarser maps", in(0.5, 512.0));
  MapPooling pooling = option(pooling, "pooling", MapPooling::max,
                              "a cell shows the max or the mean of its weights");
  std::string needle =
      option(needle, "needle", "", "positions of the retrieval score, as in kvscope analyze heads");
};

using TraceOpener =
    std::function<std::shared_ptr<const TraceSource>(const std::filesystem::path& trace)>;

/// A trace that steps show, or a draft's.
struct PlannedTrace {
  std::filesystem::path path;
  std::shared_ptr<const TraceSource> source;
};

/// A method with what decides its lists besides the head.
struct PlannedMethod {
  StoryMethod method;
  Index chunk = 128;
  std::optional<Index> dense_layers;
  std::filesystem::path draft;
  bool operator==(const PlannedMethod& other) const;
};

struct PlannedMap {
  std::size_t trace = 0;
  Index layer = 0;
  Index head = 0;
  CellGrid grid;
  std::size_t group = 0;             // maps of one group have one block
  bool is_overview = false;          // the whole context behind a part of it, always coarse
  std::vector<std::size_t> methods;  // whose kept keys are stored with it
};

/// The heaviest keys of words, for texts.
struct PlannedReads {
  std::size_t trace = 0;
  Index layer = 0;
  Index head = 0;
  TokenRange queries;
  Index most = 0;  // keys per query
  std::vector<std::size_t> methods;
};

/// What one step shows, by indices into the plan.
struct PlannedStep {
  std::optional<std::size_t> trace;
  std::vector<std::size_t> maps;  // the whole context first, if the step shows a part of it
  std::optional<std::size_t> reads;
  TokenRange words;  // of the text that is shown
  std::vector<std::size_t> methods;
};

struct StoryPlan {
  std::vector<PlannedTrace> traces;
  std::vector<PlannedTrace> drafts;
  std::vector<PlannedMethod> methods;
  std::vector<PlannedMap> maps;
  std::vector<PlannedReads> reads;
  std::vector<PlannedStep> steps;

  /// Bytes of a map, or of reads, in the page.
  double map_bytes(const PlannedMap& map) const;
  double reads_bytes(const PlannedReads& reads) const;
};

/// Opens the traces and lists what the steps show of them; blocks are not chosen yet (1). Throws
/// ConfigError for layers, heads or positions that a trace does not hold, naming the step.
StoryPlan plan_story(const Story& story, const TraceOpener& open);

/// Chooses the blocks: the finest with which everything fits into max_size beside `other_bytes`
/// (texts, figures, scripts). Throws ConfigError if 16 cells per side, or those that were asked
/// for, do not fit.
void choose_blocks(StoryPlan& plan, const StoryPageOptions& options, double other_bytes);

}  // namespace kvscope

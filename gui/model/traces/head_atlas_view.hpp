// The head atlas of the selected trace, as the panel shows it: `kvscope analyze heads`, of two
// methods `kvscope analyze overlap`, and their figures.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/figures/head_atlas_difference.hpp"
#include "analysis/kinds/heads.hpp"
#include "analysis/plot/figure.hpp"
#include "core/trace/source.hpp"
#include "gui/model/jobs/jobs.hpp"
#include "gui/model/traces/trace_part.hpp"

namespace kvscope::gui {

/// The number that each head is shown with; a loss is that under the selected method.
enum class AtlasNumber { distance, entropy, sink_share, local_share, retrieval, lost_mass };
enum class AtlasSort { layers, largest };
/// Of what the number is the difference.
enum class AtlasDifference { none, methods, traces };
/// What of two methods is shown: the attention that the first loses more, the keys that both keep,
/// or the attention on keys that one of them keeps and the other drops.
enum class AtlasCouple { lost, jaccard, first_mass, second_mass };

/// What an atlas is made of.
struct AtlasRequest {
  AtlasRequest(HeadsOptions of_heads = {}, bool overlaps = false)
      : heads(std::move(of_heads)), with_overlap(overlaps) {}
  HeadsOptions heads;
  bool with_overlap;  // of its methods' keys, under the same budget and calls
};

/// analyze_heads' result, that of a second trace, and analyze_overlap's.
struct HeadAtlas {
  HeadsOptions options;
  MemoryResult result;                          // called as the trace's file
  std::shared_ptr<const HeadAtlas> second;      // what it is compared with; null: nothing
  std::shared_ptr<const MemoryResult> overlap;  // null: not asked for
  std::vector<Index> layers;
  std::vector<Index> q_heads;
  std::size_t bytes() const {
    return sizeof *this + bytes_of(result) + (second ? second->bytes() : 0) +
           (overlap ? bytes_of(*overlap) : 0);
  }
  /// Methods whose losses were measured, as the result spells them.
  std::vector<std::string> methods() const;
};

/// Throws what analyze_heads throws.
HeadAtlas head_atlas_of(const TraceSource& trace, const HeadsOptions& options, JobContext& job);
/// With a second trace beside it; null: none. Throws what analyze_overlap throws, too.
HeadAtlas head_atlases_of(const TraceSource& trace, const TraceSource* second,
                          const AtlasRequest& request, JobContext& job);

/// Behind documents_key(): where the cache has it once the panel has asked.
std::string head_atlas_key(const AtlasRequest& request);

/// By layer and head: how much of its attention it retrieves, of the most that any does; 0 where no
/// token comes twice.
std::map<std::pair<Index, Index>, double> retrieval_shades(const HeadAtlas& atlas);

/// What of an atlas is shown.
struct AtlasChoice {
  AtlasNumber number = option(
      number, "number", AtlasNumber::distance,
      "the number of each head: how far back it looks (tokens), entropy (nats), its share of the "
      "first tokens, of the nearest keys, of tokens that followed an earlier occurrence of the "
      "current one (retrieval), or what the selected method loses of it");
  AtlasSort sort =
      option(sort, "sort", AtlasSort::layers, "heads by layer, or the largest number first");
  AtlasDifference difference = option(
      difference, "difference", AtlasDifference::none,
      "the difference of the number: of two methods (attention lost, the selected one minus the "
      "one it is compared with), or of two traces (heads of other layers by the most similar map)");
  AtlasCouple couple = option(
      couple, "couple", AtlasCouple::lost,
      "of two methods: the attention that the first loses more than the other, the share of keys "
      "that both keep, or the attention on keys that the first, or the second, alone keeps");
  bool operator==(const AtlasChoice&) const = default;
};

/// A head at its place: the unit square above (column, row) of the figure's axes.
struct AtlasPlace {
  Index layer = 0;  // true numbers of the model
  Index q_head = 0;
  double x = 0.0;
  double y = 0.0;
};

/// The command line's figure "heads" or "heads-sorted" with a caption that names the trace, and
/// where its heads lie.
struct AtlasPicture {
  plot::Figure figure;
  std::vector<AtlasPlace> places;
  std::optional<figures::HeadDifference> difference;
  /// The head under a place of the data; null between and outside.
  const AtlasPlace* at(double x, double y) const;
  const AtlasPlace* of(Index layer, Index q_head) const;
};
AtlasPicture draw_atlas(const HeadAtlas& atlas, const AtlasChoice& choice);

/// Every number of one head as "name", "value" lines, and of the head it is compared with.
std::vector<std::pair<std::string, std::string>> head_lines(
    const HeadAtlas& atlas, Index layer, Index q_head,
    const figures::HeadDifference* difference = nullptr);

/// One line per head: layer,q_head, and every number that head_lines() says.
std::string head_atlas_csv(const HeadAtlas& atlas,
                           const figures::HeadDifference* difference = nullptr);

}  // namespace kvscope::gui

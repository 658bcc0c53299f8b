#include "gui/model/traces/tour_facts.hpp"

#include <cmath>
#include <map>

#include "gui/model/map/attention_head.hpp"

namespace kvscope::gui {

namespace {

/// The head with the largest of these numbers, at least so large.
std::optional<TourFacts::Head> largest(const HeadAtlas& atlas, const char* measure, double least) {
  std::optional<TourFacts::Head> best;
  std::size_t slot = 0;
  const auto values = atlas.result.values<double>(measure);
  for (const Index layer : atlas.layers) {
    for (const Index q_head : atlas.q_heads) {
      const double value = values[slot++];
      if (value >= (best ? std::nextafter(best->share, 2.0) : least))  // false for NaN
        best = TourFacts::Head{layer, q_head, value};
    }
  }
  return best;
}

/// The heaviest pair that a retrieval head is for, of the atlas's rows.
std::optional<TourFacts::Pair> heaviest_pair(const TraceSource& trace, const HeadAtlas& atlas,
                                             const TourFacts::Head& head, std::stop_token stop) {
  const auto loaded = AttentionHead::load(trace, head.layer, head.q_head, stop);
  const auto tokens = trace.tokens();
  std::map<TokenId, std::vector<Index>> seen;
  for (std::size_t t = 0; t < tokens.size(); ++t) seen[tokens[t]].push_back(static_cast<Index>(t));
  std::optional<TourFacts::Pair> near;
  std::optional<TourFacts::Pair> far;
  for (const Index query : atlas.result.values<std::int64_t>("row_pos")) {
    for (const Index earlier : seen[tokens[static_cast<std::size_t>(query)]]) {
      const Index key = earlier + 1;
      if (key >= query) break;
      const double weight = loaded->weight(query, key).value_or(0.0);
      auto& place = query - key >= atlas.options.local_tokens ? far : near;
      if (weight > (place ? place->weight : 0.0)) place = TourFacts::Pair{query, key, weight};
    }
  }
  return far ? far : near;
}

}  // namespace

HeadsOptions plain_atlas_options() {
  HeadsOptions options;
  options.rows = 256;
  options.selector.clear();
  return options;
}

HeadsOptions rough_atlas_options() {
  HeadsOptions options = plain_atlas_options();
  options.rows = options.cells;  // one for each row of a small map
  return options;
}

AtlasOpening opening_of(const HeadAtlas& atlas) {
  constexpr double kLeastRetrieval = 0.05;  // of a head's attention: less is chance
  if (const auto head = largest(atlas, "retrieval", kLeastRetrieval))
    return {AtlasNumber::retrieval, head};
  return {AtlasNumber::distance, largest(atlas, "distance", 0.0)};
}

TourFacts tour_facts_of(const TraceSource& trace, JobContext& job) {
  const HeadAtlas atlas = head_atlas_of(trace, plain_atlas_options(), job);
  TourFacts facts{.retrieving = largest(atlas, "retrieval", 0.0),
                  .sink = largest(atlas, "sink_share", SinkShare::kLeast)};
  if (facts.retrieving) facts.pair = heaviest_pair(trace, atlas, *facts.retrieving, job.stop);
  return facts;
}

}  // namespace kvscope::gui

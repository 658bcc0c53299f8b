// What the tour may say of a trace, from its head atlas: which head retrieves best, a pair of query
// and key that it connects, and whether a head has an attention sink.
#pragma once

#include <optional>

#include "gui/model/traces/head_atlas_view.hpp"

namespace kvscope::gui {

struct TourFacts {
  struct Head {
    Index layer = 0;  // true numbers of the model
    Index q_head = 0;
    double share = 0.0;  // of its attention: the number that it was chosen by
  };
  /// A query and the key after an earlier occurrence of its token.
  struct Pair {
    Index query = 0;
    Index key = 0;
    double weight = 0.0;
  };
  std::optional<Head> retrieving;  // the best; empty: no token comes twice, or no head looks back
  std::optional<Pair> pair;        // of that head: the heaviest one, from far back if there is one
  std::optional<Head> sink;        // the head whose first tokens take most, if that is a sink
  std::size_t bytes() const { return sizeof *this; }
};

/// The atlas that the tour asks for, and the panel while it shows no method's loss.
HeadsOptions plain_atlas_options();
/// What is shown of it until it is there: of a long context a few rows only.
HeadsOptions rough_atlas_options();

/// What a trace is opened on: the number that says most of its heads, and the head that has most of
/// it.
struct AtlasOpening {
  AtlasNumber number = AtlasNumber::distance;
  std::optional<TourFacts::Head> strongest;  // empty: no head has the number
  std::size_t bytes() const { return sizeof *this; }
};

/// Retrieval if tokens come twice and a head follows them, else distance.
AtlasOpening opening_of(const HeadAtlas& atlas);

/// Throws what head_atlas_of and AttentionHead::load throw.
TourFacts tour_facts_of(const TraceSource& trace, JobContext& job);

}  // namespace kvscope::gui

// What is compared with what: two methods, two budgets or two traces, as requests for both sides.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gui/model/methods/kept_rows.hpp"
#include "gui/model/session/session.hpp"

namespace kvscope::gui {

enum class CompareWhat { methods, budgets, traces };
enum class CompareShow { maps, query };

/// The panel's own switches.
struct CompareOptions {
  CompareWhat what = option(what, "what", CompareWhat::methods,
                            "two methods, two budgets of one method, or one method in two traces");
  CompareShow show = option(show, "show", CompareShow::maps,
                            "maps of all queries, or the keys of the selected one");
  Index other_budget = option(other_budget, "other-budget", 64,
                              "past keys kept per KV head on side B", in(1, 1 << 20));
  double other_nucleus =
      option(other_nucleus, "other-nucleus", 0.8,
             "p: attention mass that top-p methods keep on side B", in(0.01, 1.0));
  bool own_head = option(
      own_head, "own-head", false,
      "side B has its own layer and head, instead of the same ones or those at the same depth");
  Index other_layer = option(other_layer, "other-layer", 0, "layer of side B", in(0, 4096));
  Index other_head = option(other_head, "other-head", 0, "query head of side B", in(0, 4096));
  bool shared_scale =
      option(shared_scale, "shared-scale", true, "the colours of A and B mean the same numbers");
  bool operator==(const CompareOptions&) const = default;
};

/// One side of the comparison.
struct CompareSide {
  std::shared_ptr<const Document> document;
  std::shared_ptr<const Document> draft;  // only for methods that need it
  KeptRequest request;
  std::string label;        // "quoka, tokens=256"
  std::string key() const;  // of a cache: everything that decides the kept rows
  std::optional<Index> window() const;
};

struct CompareSides {
  CompareSide a;
  CompareSide b;
  Index query = 0;
  /// Why they cannot be compared, with what to do; empty if they can.
  std::string problem;
  /// The two rows of the query can be compared even if the kept keys cannot.
  bool rows_only = false;
  std::string key() const { return a.key() + "|" + b.key(); }
};

/// Both sides as session and options say. The session has a trace; for CompareWhat::traces also a
/// second one.
CompareSides compare_sides(const Session& session, const CompareOptions& options);

/// The layer or head of side B that matches A's: the same number if both models have equally many
/// and B recorded it, else the recorded one at the same relative depth.
Index matching_index(Index of_a, Index n_a, Index n_b, const std::vector<Index>& recorded_b);

}  // namespace kvscope::gui

// Lists without a recording: how many keys a method's own rule keeps in a model's shape, what it
// reads to choose them, and how they lie. The method itself says so, in the calls at the end of a
// made-up text, through the same replay and the same counting (measured_work) as on a recording.
#pragma once

#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/cost/method_cost.hpp"
#include "core/base/parallel.hpp"
#include "core/base/progress.hpp"

namespace kvscope {

/// Sizes that were measured elsewhere: an entry of "lists" in a report of kvscope cost.
struct MeasuredLists {
  std::string where;  // the report, and the model that it is of
  std::string selector;
  std::string budget;  // "tokens=1024"; empty: none
  std::string phase;
  double queries = 0.0;
  double context = 0.0;
  double union_keys = 0.0;  // of a KV head
  double runs = 0.0;        // among these
  double kept = 0.0;        // of a query head's query
};

/// Reads the entries. Throws FormatError for a report that has none.
std::vector<MeasuredLists> measured_lists(std::string_view text, const std::string& where);

struct ListQuestion {
  const ModelConfig& config;
  std::string config_text;  // config.json
  std::vector<ReplayPair> pairs;
  Phase phase = Phase::prefill;
  Index chunk = 128;                  // queries of a prefill call
  Index drafts = 4;                   // of a verification
  std::optional<Index> dense_layers;  // leading layers left dense; empty: the method's own
  std::vector<Index> places;          // of config's layers in the model; empty: it has no others
  std::vector<MeasuredLists> like;    // empty: sizes from the method's rule
};

/// One method. alike and apart: where lists of different queries agree as far as the method lets
/// them, and where they share no key (a call never loads more than there is: at_context); between
/// them (geometric means of keys loaded and runs) lies middle.
struct ShapeLists {
  ReplayPair pair;
  MethodWork middle, alike, apart;
  std::string source;  // where the sizes come from, one sentence
};

struct ShapeListsOfAll {
  std::vector<ShapeLists> methods;
  std::vector<std::string> left_out;  // sentences: which, and why
};

/// Every pair, or why not: the method links layers, needs more than queries, keys and values, or
/// how many keys it keeps depends on the text (and no measured sizes are given). Throws
/// ConfigError with the first such sentence if nothing is left; Interrupted on a stop.
ShapeListsOfAll lists_of_shape(const ListQuestion& question, ThreadPool& pool,
                               const ProgressFn& progress, const std::stop_token& stop);

}  // namespace kvscope

// What the analyses share: provenance of a result, the stop check, axis arrays, and the loop over
// exact score rows.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/attention/score_rows.hpp"
#include "core/base/parallel.hpp"
#include "core/base/progress.hpp"
#include "core/trace/result_writer.hpp"
#include "core/trace/source.hpp"

namespace kvscope {

/// Who computed a result, when and how; stored with it.
struct ResultProvenance {
  std::string command_line;
  std::string writer;
  std::string created;
  ResultInfo* made = nullptr;  // gets what the result says of itself, where somebody asks
};

/// What an analysis is called with besides its traces and options.
struct AnalysisRun {
  ResultWriter& output;
  ThreadPool& pool;
  ProgressFn progress = {};
  std::stop_token stop = {};
  ResultProvenance provenance = {};

  /// Begins the output as an analysis of a trace, or of several; the configuration says which
  /// numbers of theirs are not in f32 (analysis/base/number_formats.hpp).
  void begin(std::string_view kind, const TraceSource& trace, nlohmann::ordered_json config) const;
  void begin(std::string_view kind, std::span<const TraceSource* const> traces,
             nlohmann::ordered_json config) const;
  /// Finishes the output with the summary, and returns it.
  nlohmann::ordered_json finish(nlohmann::ordered_json summary) const;
};

/// The options of an analysis, the layers and heads of the part that it looks at, and which files
/// its methods ("selector") name.
nlohmann::ordered_json with_part(nlohmann::ordered_json options, const TraceInfo& part);

/// Throws Interrupted once a stop was asked for.
void check_stop(const std::stop_token& stop, std::string_view analysis);

/// Throws ConfigError unless every recorded KV head comes with all query heads of its group, which
/// then lie at the slots [kv_slot * group, (kv_slot + 1) * group).
void require_whole_groups(const TraceInfo& info, std::string_view analysis);

/// Throws ConfigError if layers differ in KV heads or channels.
void require_one_shape(const TraceInfo& info, std::string_view analysis);

/// Declares and writes a rank-1 coordinate array.
void write_axis(ResultWriter& output, std::string_view name, std::span<const Index> values,
                std::string_view units, std::string_view long_name);

/// The arrays "layer", "q_head" and "kv_head" that plots use as coordinates.
void write_head_axes(ResultWriter& output, const TraceInfo& info);

/// What a summary's totals say when every layer counts the same: the mean over the layers' entries
/// of each fractional number, null entries left out; null where no layer has one.
nlohmann::ordered_json mean_of_layers(const nlohmann::ordered_json& layers);
/// The largest of their numbers of that key; null if no layer has one.
nlohmann::ordered_json max_of_layers(const nlohmann::ordered_json& layers, const char* key);

/// Runs over exact score rows in parallel, at most 16 rows at a time; memory per worker is 16 rows
/// of the context.
class ScoreRowLoop {
 public:
  ScoreRowLoop(ThreadPool& pool, std::stop_token stop, std::string_view analysis);

  /// Called once per row with its index into `positions`, the scores of its visible keys (may be
  /// overwritten), and the range of those keys. Rows come in any order and from several threads.
  using Body = std::function<void(Index index, std::span<double> scores, TokenRange visible)>;

  /// Rows of a query head at `positions`, as the model scores them. Of queries that lie
  /// far apart only those asked for are read.
  void run(const TraceSource& trace, Index layer, Index q_head, std::span<const Index> positions,
           const KeyTable& keys, const Body& body);
  /// q: [n, d_head], rows of the positions from q_begin on; `score`: how scores follow from q.k.
  void run(TensorView<const float> q, Index q_begin, std::span<const Index> positions,
           const KeyTable& keys, const ScoreRule& score, std::optional<Index> window,
           const Body& body);

 private:
  using Visit = std::function<void(Index first, std::span<const Index> positions, ScoreRows&)>;
  void for_blocks(std::span<const Index> positions, const Visit& visit);

  ThreadPool& pool_;
  std::stop_token stop_;
  std::string analysis_;
  std::vector<ScoreRows> scratch_;
};

}  // namespace kvscope

// S_q against the largest attention weight, as the explorer asks for it: one head at a time for
// what is looked at, a layer at a time for the map of correlations, and the queries that QuoKA
// keeps of a chunk. Then the panel's pictures (query_selection_figure.cpp): the scatter of one
// head, and the map of all correlations that are known so far.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "analysis/kinds/query_correlation.hpp"
#include "analysis/kinds/query_selection.hpp"
#include "analysis/plot/figure.hpp"
#include "gui/model/jobs/cache.hpp"
#include "gui/model/jobs/jobs.hpp"
#include "gui/model/traces/trace_part.hpp"

namespace kvscope::gui {

/// What of one layer is analysed. Heads are ascending; the answers for a head do not depend on
/// which others are asked for with it.
struct QuerySelectionRequest {
  Index layer = 0;
  std::vector<Index> q_heads;
  QuerySelectionOptions options;  // its selection is set from the two above
  /// Everything that determines the result, as a cache key.
  std::string key() const;
};

/// The result of analyze_query_selection over one layer.
struct QuerySelectionView {
  MemoryResult result;
  Index layer = 0;
  std::vector<Index> q_heads;
  std::size_t bytes() const { return sizeof *this + bytes_of(result); }
  bool has_head(Index q_head) const;
};

/// Throws what analyze_query_selection throws.
QuerySelectionView query_selection_view(const TraceSource& trace,
                                        const QuerySelectionRequest& request, JobContext& job);

/// The value if it was computed before, by itself or with all heads of its layer.
std::shared_ptr<const QuerySelectionView> known_query_selection(Cache& cache,
                                                                const std::string& document_key,
                                                                const TraceInfo& info,
                                                                QuerySelectionRequest request);

/// One head of it: arrays [query] into the view.
struct QuerySelectionHead {
  std::span<const std::int64_t> pos;  // of the measured queries, ascending
  std::span<const float> prompt_s_q, chunk_s_q, log_max_weight, lse, breadth;
  std::span<const std::int32_t> max_key;  // -1: no key is left
  QueryCorrelation prompt, chunk;         // over the queries from `skip` on
  double within_chunk = 0.0;              // mean of the chunks' own Pearson; NaN without any
  double position_weight = 0.0;           // Pearson of what is held fixed and the log weight

  std::span<const float> s_q(QuerySpan span) const {
    return span == QuerySpan::prompt ? prompt_s_q : chunk_s_q;
  }
  const QueryCorrelation& correlation(QuerySpan span) const {
    return span == QuerySpan::prompt ? prompt : chunk;
  }
  /// Index of the measured query at the position; empty if it was not measured.
  std::optional<std::size_t> find(Index position) const;
};

/// Throws ConfigError for a head that was not asked for.
QuerySelectionHead head_of(const QuerySelectionView& view, Index q_head);

/// Pearson of S_q and the log of the largest weight, [view.q_heads]; NaN where not defined.
std::vector<double> correlations_of(const QuerySelectionView& view, QuerySpan span);

/// Single queries of one head, measured as the analysis does, whether it sampled them or not.
struct MeasuredQueries {
  std::vector<Index> pos;
  std::vector<double> prompt_s_q;
  std::vector<double> chunk_s_q;       // NaN for a query alone in its chunk
  std::vector<double> log_max_weight;  // NaN if no key is left
  std::vector<Index> max_key;          // -1 if none is left
  std::size_t bytes() const;
  const std::vector<double>& s_q(QuerySpan span) const {
    return span == QuerySpan::prompt ? prompt_s_q : chunk_s_q;
  }
  std::optional<std::size_t> find(Index position) const;
};

struct MeasureRequest {
  Index layer = 0;
  Index q_head = 0;
  std::vector<Index> positions;
  QuerySelectionOptions options;  // chunk, mean, skip, skip-recent, eps
  /// Everything that determines the result, as a cache key.
  std::string key() const;
};

/// Throws ConfigError for a head or positions that were not recorded.
MeasuredQueries measure_queries(const TraceSource& trace, const MeasureRequest& request,
                                JobContext& job);

/// The queries that QuoKA keeps of one prefill chunk, for one head.
struct ChunkPicks : MeasuredQueries {  // lowest cosine first, as the method orders its slots
  TokenRange chunk;
};

struct ChunkPicksRequest {
  Index layer = 0;
  Index q_head = 0;
  TokenRange chunk;  // inside the prompt
  Index n_queries = 16;
  QuerySelectionOptions options;
  std::string key() const;
};

/// Throws as measure_queries does.
ChunkPicks chunk_picks(const TraceSource& trace, const ChunkPicksRequest& request, JobContext& job);

/// Multiply-adds that the analysis of one layer needs: what decides if all layers are computed
/// unasked.
double query_selection_cost(const TraceInfo& info, const QuerySelectionOptions& options);

/// The panel's switches.
struct QuerySelectionSwitches {
  QuerySpan span =
      option(span, "span", QuerySpan::prompt,
             "S_q compares a query with the mean of the whole prompt or of its own chunk");
  bool skip_sink =
      option(skip_sink, "skip-sink", true,
             "the first position counts neither as the largest weight's key nor as a query");
  Index skip_recent = option(
      skip_recent, "skip-recent", 0,
      "last visible keys, the query's own first, that do not count as the largest weight's key: "
      "reveals heads that attend only to their neighbours",
      in(0, 4096));
  bool picks =
      option(picks, "picks", true, "emphasise the queries that QuoKA keeps of the current chunk");
};

/// The analysis' options for the switches and the session's chunk length.
QuerySelectionOptions options_of(const QuerySelectionSwitches& switches, Index chunk);

/// S_q against the largest weight (logarithmic); points are of positions. Mark 0 is the cloud of
/// measured queries that count and have both numbers, coloured by position; mark 1, if there are
/// any, those of `picks` that have both, in its order.
/// Throws ConfigError if no query has both numbers.
plot::Figure scatter_figure(const QuerySelectionHead& head, Index layer, Index q_head,
                            const QuerySelectionSwitches& switches, const ChunkPicks* picks);

/// Known correlations by layer: Pearson of S_q and the log weight per recorded head.
using LayerCorrelations = std::map<Index, std::vector<double>>;

/// Layer x head; layers that are not known yet are masked, the selected head boxed.
plot::Figure strip_figure(const TraceInfo& info, const LayerCorrelations& known, Index layer,
                          Index q_head);

/// Both, side by side, as the figure kind "query-scores" shows them.
plot::Figure joined_figure(plot::Figure scatter, const plot::Figure& strip);

/// One coefficient in words.
struct Coefficient {
  std::string name;     // "Pearson r"
  double value = 0.0;   // NaN: not defined
  std::string meaning;  // a sentence
};
std::vector<Coefficient> coefficients_of(const QuerySelectionHead& head, QuerySpan span);

/// Columns q_head, pos, token_id, s_q_prompt, s_q_chunk, log_max_weight, max_weight, max_key,
/// breadth, picked: one line per measured query, then those of the chunk that were not measured.
std::string query_selection_csv(const QuerySelectionHead& head, Index layer, Index q_head,
                                std::span<const TokenId> tokens, const ChunkPicks* picks);

}  // namespace kvscope::gui

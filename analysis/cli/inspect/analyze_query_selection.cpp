// kvscope analyze query-selection: S_q against the largest attention weight of a query.
#include "analysis/cli/inspect/analyze_one.hpp"
#include "analysis/kinds/query_selection.hpp"

namespace kvscope::cli {

KVSCOPE_COMMAND(
    206, AnalyzeOne<QuerySelectionOptions>, analyze_query_selection,
    AnalysisCard{
        .kind = "query-selection",
        .summary = "QuoKA's S_q against the log of the largest attention weight",
        .about = "Does S_q = -cos(query, mean query) find the queries that put much weight on one "
                 "key? The mean is the prompt's, and for the columns named after the chunk that of "
                 "the query's own prefill chunk. Later queries see more keys and have smaller "
                 "weights, so the partial correlations hold the position fixed: linearly (partial) "
                 "or by ranks (partial ranks). Rows are means over the heads; partial > 0 is the "
                 "share of heads in which it is positive; the best head is that of the largest "
                 "Pearson correlation, so expect it to be above the mean by chance.",
        .columns = {{"prompt_pearson_log", "Pearson"},
                    {"prompt_spearman", "Spearman"},
                    {"prompt_partial_pearson", "partial"},
                    {"prompt_partial_spearman", "partial ranks"},
                    {"partial_positive", "partial > 0"},
                    {"chunk_pearson_log", "chunk mean"},
                    {"within_chunk", "within chunk"},
                    {"best_pearson_log", "best head"},
                    {"best_head", "which"}},
        .headline =
            "S_q and the log of the largest weight: Pearson {prompt_pearson_log:3}, Spearman "
            "{prompt_spearman:3}; given the position {prompt_partial_pearson:3} and "
            "{prompt_partial_spearman:3}; within a chunk {within_chunk:3}"})

}  // namespace kvscope::cli

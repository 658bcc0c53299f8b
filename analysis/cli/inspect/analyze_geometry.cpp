// kvscope analyze geometry: principal axes, clustering and norms of queries and keys.
#include "analysis/cli/inspect/analyze_one.hpp"
#include "analysis/kinds/geometry.hpp"

namespace kvscope::cli {

KVSCOPE_COMMAND(
    205, AnalyzeOne<GeometryOptions>, analyze_geometry,
    AnalysisCard{
        .kind = "geometry",
        .summary = "queries and keys: principal axes, clustering, norms",
        .about =
            "Fits principal axes to all recorded queries and keys after RoPE, per layer and KV "
            "head, and shows the queries and keys along the first three. Means are those of the "
            "prompt: a cosine of 1 to the mean says that all vectors point one way. Rows are means "
            "over the heads, the last line the mean over the layers; shares of the variance are "
            "out of 1.",
        .columns = {{"explained_first", "1st axis"},
                    {"explained_shown", "first 3"},
                    {"axes_for_90_percent", "axes for 90 %"},
                    {"query_clustering", "cos(q, mean q)"},
                    {"key_clustering", "cos(k, mean k)"},
                    {"mean_query_mean_key", "cos(mean q, mean k)"},
                    {"q_norm_mean", "|q|"},
                    {"k_norm_mean", "|k|"},
                    {"v_norm_mean", "|v|"}},
        .headline = "three axes hold {explained_shown:%} of the variance; queries lie at cosine "
                    "{query_clustering:3} to their mean, keys at {key_clustering:3} to theirs, and "
                    "the two means at {mean_query_mean_key:3}",
        .one_shape = true,
        .has_items = true})

}  // namespace kvscope::cli

// The kinds of kvscope analyze that are one function of traces and one options struct: a card for
// each.
#include "analysis/cli/inspect/analyze_one.hpp"
#include "analysis/kinds/attention_map.hpp"
#include "analysis/kinds/geometry.hpp"
#include "analysis/kinds/heads.hpp"
#include "analysis/kinds/layer_map.hpp"
#include "analysis/kinds/overlap.hpp"
#include "analysis/kinds/query_selection.hpp"
#include "analysis/kinds/quest_bounds.hpp"
#include "analysis/kinds/quoka.hpp"
#include "analysis/kinds/theorem_b1.hpp"

namespace kvscope::cli {

KVSCOPE_COMMAND(
    201, AnalyzeOne<QuokaOptions>, analyze_quoka,
    AnalysisCard{
        .kind = "quoka",
        .summary = "QuoKA: representative queries of a chunk, key scores, kept keys",
        .columns = {{"attention kept", "{mass_mean}"},
                    {"5th percentile", "{mass_p05}"},
                    {"oracle recall", "{oracle_recall}"},
                    {"sink kept", "{sink_selected}"},
                    {"keys saved", "{reduction_per_kv_head}"},
                    {"r(S_q, log weight)", "{pearson_log_mean}"}},
        .headline = "kept keys hold {mass_mean:%} of the attention (5th percentile of the rows: "
                    "{mass_p05:%}) and save {reduction_per_kv_head:%} of the key reads; recall and "
                    "sink are means over the {chunks} calls, of which each decoded token is one",
        .measured = "rows_where_the_budget_cuts",
        .if_none = "the budget covers the past keys of every chunk, or no layer is chosen from: "
                   "nothing is left out, so nothing is measured; give a smaller --budget, or "
                   "record more tokens",
        .one_shape = true,
        .has_items = true})

KVSCOPE_COMMAND(
    202, AnalyzeOne<TheoremB1Options>, analyze_theorem_b1,
    AnalysisCard{
        .kind = "theorem-b1",
        .summary = "Theorem B.1: cosines against the printed and the repaired bounds",
        .columns = {{"rows", "{rows}"},
                    {"mean cos", "{cos_mean}"},
                    {"printed violated", "{printed_violations}"},
                    {"repaired violated", "{repaired_violations}"},
                    {"Jensen violated", "{jensen_violations}"},
                    {"worst violated", "{worst_violations}"},
                    {"Jensen gap", "{jensen_mean_gap}"},
                    {"worst gap", "{worst_mean_gap}"}},
        .headline = "{rows} rows: printed bound violated {printed_violations} times, repaired "
                    "{repaired_violations}, Jensen {jensen_violations}, worst case "
                    "{worst_violations}; mean Jensen gap {jensen_mean_gap:3}",
        .must_be_zero = "violations_of_proved_bounds",
        .has_items = true})

KVSCOPE_COMMAND(
    203, AnalyzeOne<QuestOptions>, analyze_quest,
    AnalysisCard{
        .kind = "quest",
        .summary = "Quest: page bounds against the true maxima, kept attention",
        .columns = {{"violated", "{violations}"},
                    {"bound gap", "{gap_mean}"},
                    {"rank corr.", "{rank_correlation}"},
                    {"mass (eval)", "{eval_mass}"},
                    {"best page kept", "{eval_best_page_kept}"},
                    {"mass (kernel)", "{kernel_mass}"},
                    {"best page kept", "{kernel_best_page_kept}"},
                    {"keys saved", "{eval_reduction_per_kv_head}"}},
        .headline =
            "bound violated {violations} times in {rows} rows; kept pages hold {eval_mass:%} "
            "of the attention (kernel rule: {kernel_mass:%}) and save "
            "{eval_reduction_per_kv_head:%} of the key reads",
        .must_be_zero = "violations",
        .one_shape = true,
        .has_items = true})

KVSCOPE_COMMAND(
    204, AnalyzePair<LayerMapOptions>, analyze_layer_map,
    AnalysisCard{
        .kind = "layer-map",
        .summary = "SpecAttn: KL(verifier || draft) of all layer pairs, layer maps",
        .columns = {{"mapped to", "{draft_layer}"},
                    {"KL", "{kl}"},
                    {"total variation", "{total_variation}"},
                    {"Pinsker floor", "{pinsker_floor}"},
                    {"nearest", "{argmax_draft_layer}"},
                    {"its KL", "{argmax_kl}"}},
        .headline = "mean KL of the mapped layers {kl_mean_mapped:3} nat; monotone map costs "
                    "{monotone_cost:3}, the unconstrained one {argmax_cost:3}; --eps smoothed "
                    "{smoothed_layer_rows} layer rows, of which zeros would make it infinite"})

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
        .columns = {{"1st axis", "{explained_first}"},
                    {"first 3", "{explained_shown}"},
                    {"axes for 90 %", "{axes_for_90_percent}"},
                    {"cos(q, mean q)", "{query_clustering}"},
                    {"cos(k, mean k)", "{key_clustering}"},
                    {"cos(mean q, mean k)", "{mean_query_mean_key}"},
                    {"|q|", "{q_norm_mean}"},
                    {"|k|", "{k_norm_mean}"},
                    {"|v|", "{v_norm_mean}"}},
        .headline = "three axes hold {explained_shown:%} of the variance; queries lie at cosine "
                    "{query_clustering:3} to their mean, keys at {key_clustering:3} to theirs, and "
                    "the two means at {mean_query_mean_key:3}",
        .one_shape = true,
        .has_items = true})

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
        .columns = {{"Pearson", "{prompt_pearson_log}"},
                    {"Spearman", "{prompt_spearman}"},
                    {"partial", "{prompt_partial_pearson}"},
                    {"partial ranks", "{prompt_partial_spearman}"},
                    {"partial > 0", "{partial_positive}"},
                    {"chunk mean", "{chunk_pearson_log}"},
                    {"within chunk", "{within_chunk}"},
                    {"best head", "{best_pearson_log}"},
                    {"which", "{best_head}"}},
        .headline =
            "S_q and the log of the largest weight: Pearson {prompt_pearson_log:3}, Spearman "
            "{prompt_spearman:3}; given the position {prompt_partial_pearson:3} and "
            "{prompt_partial_spearman:3}; within a chunk {within_chunk:3}"})

KVSCOPE_COMMAND(
    208, AnalyzeWhole<AttentionMapOptions>, analyze_attention_map,
    AnalysisCard{
        .kind = "attention-map",
        .summary = "the attention map of one head, pooled for a figure",
        .about = "Recomputes the softmax rows of one query head from the recorded q and k, block "
                 "by block, and keeps the largest (or mean) weight of each cell. kvscope figure "
                 "attention-map draws it.",
        .headline = "layer {layer}, query head {head}: {tokens} tokens in {cells} x {cells} cells "
                    "of {block} x {block} weights ({pooling})",
        .needs_out = "the map goes to a file"})

KVSCOPE_COMMAND(
    209, AnalyzeOne<HeadsOptions>, analyze_heads,
    AnalysisCard{
        .kind = "heads",
        .summary = "which heads do what: distance, sink, retrieval, loss, small maps",
        .about =
            "Measures every query head on exact rows: mean attention distance, entropy, the "
            "share of the first tokens (sink) and of the nearest keys (local), and a retrieval "
            "score: the weight on the needle's positions (--needle), else on the tokens that "
            "followed an earlier occurrence of the current token, as induction heads do, with "
            "the share that a uniform row would give them; rows without such a token are left "
            "out of its mean. A replay measures what each head loses under sparse methods at "
            "one budget. --out also holds a small map of every head; kvscope figure heads draws "
            "the atlas. Rows are means over the heads of a layer; --json has every head.",
        .columns = {{"distance", "{distance}"},
                    {"entropy", "{entropy}"},
                    {"sink", "{sink_share}"},
                    {"local", "{local_share}"},
                    {"retrieval", "{retrieval}"},
                    {"by chance", "{retrieval_chance}"},
                    {"best", "{retrieval_max}"},
                    {"its head", "{best_head}"}},
        .headline = "{heads} heads look {distance:3} tokens back on average; {sink_share:%} of the "
                    "attention lies on the first tokens, {local_share:%} nearby, {retrieval:%} on "
                    "what is looked for ({retrieval_chance:%} by chance)",
        .more_of = "methods",
        .more = {{"method", "{pair}"},
                 {"attention lost", "{lost_mass:3}"},
                 {"worst layer", "{worst_layer:3}"},
                 {"head", "{worst_head:3}"},
                 {"it loses", "{worst_lost_mass:3}"}}})

KVSCOPE_COMMAND(
    212, AnalyzeOne<OverlapOptions>, analyze_overlap,
    AnalysisCard{
        .kind = "overlap",
        .summary = "which keys methods share, and who keeps what the others drop",
        .about =
            "Replays the methods and compares their lists of the keys before each call, two by two "
            "at the same budget, and each with all the others together: shared keys / keys of "
            "either (Jaccard), and the attention on keys that both keep, or one alone. --out has "
            "every head.",
        .columns = {{"Jaccard", "{jaccard}"},
                    {"shared mass", "{shared_mass}"},
                    {"first alone", "{first_mass}"},
                    {"second alone", "{second_mass}"}},
        .headline =
            "of their keys before a call two sides share {jaccard:%} on average (over budgets, "
            "and over each method against all the others too); of a row's attention "
            "{shared_mass:%} lies on keys before the call that both keep, "
            "{first_mass:%} and {second_mass:%} on those that one alone keeps",
        .more_of = "couples",
        .more = {{"first", "{first}"},
                 {"second", "{second}"},
                 {"budget", "{budget}"},
                 {"Jaccard", "{jaccard:3}"},
                 {"shared mass", "{shared_mass:3}"},
                 {"first alone", "{first_mass:3}"},
                 {"second alone", "{second_mass:3}"}}})

KVSCOPE_COMMAND(
    213, AnalyzeOne<RowSharingOptions>, analyze_row_sharing,
    AnalysisCard{
        .kind = "row-sharing",
        .summary = "how much the rows of a verification call share their kept keys",
        .about = "A kernel that takes a call's rows together reads each key that any of them "
                 "keeps. Counted are keys before the call; --phase prefill does it with chunks.",
        .columns = {{"row share", "{row_share}"}, {"in all rows", "{jaccard}"}},
        .headline = "a row keeps {row_share:%} of the keys that its call reads, and {jaccard:%} "
                    "are kept by all rows (means over layers, heads, calls and methods)",
        .more_of = "pairs",
        .more = {{"method", "{method}"},
                 {"keys of a row", "{row_keys:4}"},
                 {"of the call", "{call_keys:4}"},
                 {"row share", "{row_share:3}"},
                 {"in all rows", "{jaccard:3}"}}})

}  // namespace kvscope::cli

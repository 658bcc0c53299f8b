#include "notebooks_export/metric_info.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace kvscope {

namespace {

struct KnownMetric {
  std::string_view column;  // the whole name
  std::string_view title;
  Better better;
  NumberFormat format;
  std::string_view quantity = {};  // what it says in another form; empty: itself
};

constexpr NumberFormat kShare{3, false, false, false};
constexpr NumberFormat kPercent{1, true, true, false};
constexpr NumberFormat kRise{2, true, true, true};
constexpr NumberFormat kPoints{2, true, false, false};
constexpr NumberFormat kWhole{0, false, false, false};
constexpr NumberFormat kTenths{1, false, false, false};
constexpr NumberFormat kHundredths{2, false, false, false};
constexpr NumberFormat kTiny{6, false, false, false};

constexpr Better kHigher = Better::higher;
constexpr Better kLower = Better::lower;
constexpr Better kNeither = Better::neither;

/// Every column of numbers that a command writes (a test walks over them), and the names that other
/// programs' tables use. Never by a part of the name: ttft_ratio is no TTFT.
constexpr KnownMetric kKnown[] = {
    // where a row stands, and how much went into it
    {"layer", "Layer", kNeither, kWhole},
    {"q_head", "Query head", kNeither, kWhole},
    {"kv_head", "KV head", kNeither, kWhole},
    {"draft_layer", "Draft layer", kNeither, kWhole},
    {"argmax_draft_layer", "Draft layer by the likeliest key", kNeither, kWhole},
    {"best_head", "Best query head", kNeither, kWhole},
    {"pearson_log_best_head", "Query head of the best correlation", kNeither, kWhole},
    {"window", "Sliding window", kNeither, kWhole},
    {"dense", "Dense", kNeither, kWhole},
    {"calls", "Calls", kNeither, kWhole},
    {"rows", "Query rows", kNeither, kWhole},
    {"budget", "Budget", kNeither, kShare},
    {"gamma", "Drafted tokens", kNeither, kWhole},
    {"length", "Length (tokens)", kNeither, kWhole},
    {"depth", "Depth of the fact", kNeither, kHundredths},
    {"prompts", "Prompts", kNeither, kWhole},
    {"turn", "Turn", kNeither, kWhole},
    {"prompt_tokens", "Prompt (tokens)", kNeither, kWhole},
    {"tokens", "Tokens", kNeither, kWhole},
    {"queries", "Queries", kNeither, kWhole},
    {"n_tokens", "Tokens", kNeither, kWhole},
    {"scored_tokens", "Scored tokens", kNeither, kWhole},
    {"texts", "Texts", kNeither, kWhole},
    {"rows_where_the_budget_cuts", "Rows in which the budget cuts", kNeither, kWhole},
    {"zero_mean_queries", "Queries without a mean", kNeither, kWhole},
    {"axes_for_90_percent", "Axes for 90% of the variance", kNeither, kTenths},
    // answers and text
    {"accuracy", "Accuracy", kHigher, kPoints},
    {"p_dense", "p of the test against full attention", kNeither, kShare},
    {"steps", "Decoded steps", kNeither, kWhole},
    {"steps_right", "Steps before the first error", kHigher, kTenths},
    {"exact_match", "Exact match", kHigher, kPoints},
    {"score", "Score", kHigher, kPoints},
    {"perplexity", "Perplexity", kLower, kShare},
    {"ppl", "Perplexity", kLower, kShare, "perplexity"},
    {"log_perplexity", "Log-perplexity (nats)", kLower, kShare, "perplexity"},
    {"relative_increase", "Increase over full attention", kLower, kRise, "perplexity"},
    {"nll", "Negative log-likelihood", kLower, kShare},
    {"loss", "Loss", kLower, kShare},
    // what is kept
    {"mass", "Attention kept", kHigher, kShare},
    {"mass_mean", "Attention kept", kHigher, kShare},
    {"together_mass", "Attention kept with all restrictions", kHigher, kShare},
    {"eval_mass", "Attention kept", kHigher, kShare},
    {"kernel_mass", "Attention kept by the kernel's rule", kHigher, kShare},
    {"specattn_mass", "Attention kept by SpecAttn", kHigher, kShare},
    {"nucleus_mass", "Attention of the true nucleus", kNeither, kShare},
    {"mass_p05", "5th percentile of the attention kept", kHigher, kShare},
    {"mass_min", "Least attention kept", kHigher, kShare},
    {"rows_with_zero_mass", "Rows without attention", kLower, kWhole},
    {"recall", "Recall", kHigher, kShare},
    {"recall10", "Top-10 recall", kHigher, kShare},
    {"recallk", "Top-k recall", kHigher, kShare},
    {"eval_recall_top10", "Top-10 recall", kHigher, kShare},
    {"kernel_recall_top10", "Top-10 recall by the kernel's rule", kHigher, kShare},
    {"oracle_recall", "Recall of the oracle's keys", kHigher, kShare},
    {"eval_best_page_kept", "Steps that keep the best page", kHigher, kShare},
    {"kernel_best_page_kept", "Steps that keep the best page, kernel's rule", kHigher, kShare},
    {"best_page_ranked_first", "Steps that rank the best page first", kHigher, kShare},
    {"jaccard", "Jaccard index of the kept keys", kHigher, kShare},
    {"output_error", "Output error", kLower, kShare},
    {"output_error_rel", "Relative output error", kLower, kShare},
    {"output_error_raw", "Raw output error", kLower, kShare},
    {"together_output_error", "Output error with all restrictions", kLower, kShare},
    {"kept", "Keys kept", kNeither, kTenths},
    {"density", "Density (keys kept of those seen)", kLower, kShare},
    {"match_reached", "Cost reached", kNeither, kShare},
    {"best_mass", "Most attention of as many keys in each row", kNeither, kShare},
    {"lost_choosing", "Attention lost by choosing keys", kLower, kShare},
    {"lost_dividing", "Attention lost by dividing keys over rows", kLower, kShare},
    // predicted times
    {"batch", "Batch", kNeither, kWhole},
    {"context", "Context (tokens)", kNeither, kWhole},
    {"extrapolated", "Scaled from the measured lists", kNeither, kWhole},
    {"runs", "Runs of adjacent keys", kNeither, kTenths},
    {"append_us", "Append (us), predicted", kLower, kTenths},
    {"score_us", "Scoring (us), predicted", kLower, kTenths},
    {"topk_us", "Top-k (us), predicted", kLower, kTenths},
    {"attend_us", "Gather and attend (us), predicted", kLower, kTenths},
    {"estimate_us", "Estimate (us), predicted", kLower, kTenths},
    {"predicted_us", "Attention (us), predicted", kLower, kTenths},
    {"predicted_dense_us", "Dense attention (us), predicted", kNeither, kTenths},
    {"predicted_speedup", "Speedup of attention, predicted", kHigher, kHundredths},
    {"measured_us", "Attention (us), measured", kLower, kTenths},
    {"break_even", "Pays from (tokens), predicted", kLower, kWhole},
    {"call_us", "Whole call (us), predicted", kLower, kTenths},
    {"dense_call_us", "Whole call with dense attention (us), predicted", kNeither, kTenths},
    {"call_speedup", "Speedup of the whole call, predicted", kHigher, kHundredths},
    {"memory_share", "Share of the card's memory", kLower, kShare},
    {"fits", "Fits the card's memory", kHigher, kWhole},
    {"beyond_limit", "Beyond the model's longest context", kNeither, kWhole},
    {"first_token_s", "First token after (s), predicted", kLower, kHundredths},
    {"dense_first_token_s", "First token with dense attention (s)", kNeither, kHundredths},
    {"first_token_speedup", "Speedup of the whole prompt, predicted", kHigher, kHundredths},
    {"tokens_per_s", "Tokens a second, predicted", kHigher, kTenths},
    {"dense_tokens_per_s", "Tokens a second with dense attention", kNeither, kTenths},
    {"error", "Predicted over published, less one", kNeither, kShare},
    {"together_kept", "Keys kept with all restrictions", kNeither, kTenths},
    {"tie_share", "Share of rows with a tie at the cut", kLower, kShare},
    {"tie_changed", "Keys changed by the order of ties", kLower, kTenths},
    {"union", "Keys loaded", kNeither, kTenths},
    {"specattn_kept", "Keys kept by SpecAttn", kNeither, kTenths},
    {"sink_selected", "Rows that select the sink", kNeither, kShare},
    {"sink_share", "Share of the sinks", kNeither, kShare},
    {"far_share", "Share of the attention on far keys", kNeither, kShare},
    {"far_mass", "Attention kept on far keys", kHigher, kShare},
    {"forced_share", "Share kept by rule", kNeither, kShare},
    // what heads do
    {"distance", "Attention distance (tokens)", kNeither, kTenths},
    {"entropy", "Entropy (nats)", kNeither, kHundredths},
    {"local_share", "Share of the nearest keys", kNeither, kShare},
    {"retrieval", "Retrieval score", kNeither, kShare},
    {"retrieval_chance", "Retrieval score of a flat row", kNeither, kShare},
    {"retrieval_max", "Best retrieval score", kNeither, kShare},
    {"no_key_share", "Share of the attention sink", kNeither, kShare},
    {"lost_mass", "Attention lost", kLower, kShare},
    {"shared_mass", "Attention that both keep", kHigher, kShare},
    {"first_mass", "Attention of the first alone", kHigher, kShare},
    {"second_mass", "Attention of the second alone", kHigher, kShare},
    {"churn", "Churn", kNeither, kShare},
    {"budget_mean", "Keys for the target, mean", kNeither, kTenths},
    {"budget_p95", "Keys for the target, 95th percentile", kNeither, kTenths},
    {"budget_max", "Keys for the target, most", kNeither, kTenths},
    {"budget_shared", "Keys for the target, one budget for all", kNeither, kTenths},
    {"kv_reduction", "KV reduction", kHigher, kPercent},
    {"kv_union_reduction", "KV reduction, keys loaded", kHigher, kPercent},
    {"reduction", "Reduction", kHigher, kPercent},
    {"reduction_per_q_head", "Reduction per query head", kHigher, kPercent},
    {"reduction_per_kv_head", "Reduction per KV head", kHigher, kPercent},
    {"eval_reduction_per_q_head", "Reduction per query head", kHigher, kPercent},
    {"eval_reduction_per_kv_head", "Reduction per KV head", kHigher, kPercent},
    {"kernel_reduction_per_q_head", "Reduction per query head, kernel's rule", kHigher, kPercent},
    {"kernel_reduction_per_kv_head", "Reduction per KV head, kernel's rule", kHigher, kPercent},
    // distributions and bounds
    {"kl", "KL divergence (nats)", kLower, kShare},
    {"argmax_kl", "KL divergence by the likeliest key (nats)", kLower, kShare},
    {"total_variation", "Total variation", kLower, kShare},
    {"pinsker_floor", "Pinsker floor", kNeither, kShare},
    {"tv_floor", "Floor by total variation", kNeither, kShare},
    {"violations", "Violations", kLower, kWhole},
    {"printed_violations", "Violations, as printed", kNeither, kWhole},
    {"repaired_violations", "Violations, repaired", kNeither, kWhole},
    {"jensen_violations", "Violations, Jensen's form", kNeither, kWhole},
    {"worst_violations", "Violations, worst case", kNeither, kWhole},
    {"main_text_relaxed_violations", "Violations, main text relaxed", kNeither, kWhole},
    {"main_text_exact_violations", "Violations, main text exact", kNeither, kWhole},
    {"printed_mean_gap", "Mean gap, as printed", kNeither, kShare},
    {"repaired_mean_gap", "Mean gap, repaired", kNeither, kShare},
    {"jensen_mean_gap", "Mean gap, Jensen's form", kNeither, kShare},
    {"worst_mean_gap", "Mean gap, worst case", kNeither, kShare},
    {"main_text_relaxed_mean_gap", "Mean gap, main text relaxed", kNeither, kShare},
    {"main_text_exact_mean_gap", "Mean gap, main text exact", kNeither, kShare},
    {"cos_mean", "Mean cosine", kNeither, kShare},
    {"gap_mean", "Mean gap of the bound", kLower, kShare},
    {"gap_best", "Gap of the best page", kLower, kShare},
    {"rank_correlation", "Rank correlation", kHigher, kShare},
    // speculation and time
    {"acceptance", "Acceptance length", kHigher, kHundredths},
    {"acceptance_length", "Acceptance length", kHigher, kHundredths},
    {"acceptance_rate", "Acceptance rate", kHigher, kShare},
    {"accepted", "Accepted tokens", kHigher, kHundredths},
    {"tokens_per_pass", "Tokens per pass", kHigher, kHundredths},
    {"tokens_per_second", "Tokens/s", kHigher, kTenths},
    {"same_as_dense", "Runs equal to greedy decoding", kHigher, kShare},
    {"first_difference", "First differing token", kNeither, kWhole},
    {"speedup", "Speedup", kHigher, kHundredths},
    {"ttft_ratio", "TTFT speedup over dense", kHigher, kHundredths},
    {"attention_ratio", "Attention speedup over dense", kHigher, kHundredths},
    {"latency", "Latency", kLower, kShare},
    {"ttft", "TTFT", kLower, kShare},
    {"seconds", "Seconds", kLower, kShare},
    {"ttft_seconds", "TTFT (s)", kLower, kShare},
    {"step_seconds", "Decode step (s)", kLower, kShare},
    {"attention_seconds", "Attention (s)", kLower, kShare},
    {"selection_seconds", "Selection (s)", kLower, kShare},
    {"draft_seconds", "Drafting (s)", kLower, kShare},
    {"rest_seconds", "Rest (s)", kLower, kShare},
    {"repeat", "Measured turns", kNeither, kWhole},
    {"seconds_median", "Selection (s), median", kLower, kTiny},
    {"append_seconds", "Appending to metadata (s)", kLower, kTiny},
    {"attend_seconds_median", "Attention over the list (s), median", kLower, kTiny},
    {"dense_seconds_median", "Dense attention (s), median", kNeither, kTiny},
    {"dense_gflops_per_second", "Dense attention (GFLOP/s)", kHigher, kTenths},
    {"sort_seconds", "Sorting (s)", kLower, kTiny},
    {"search_seconds", "Searching (s)", kLower, kTiny},
    {"least_mass_paper_eps", "Least mass, as printed", kNeither, kShare},
    {"least_mass_paper_10", "Least mass, ten halvings", kNeither, kShare},
    {"least_mass_safe_low", "Least mass, lower end", kNeither, kShare},
    {"least_mass_exact", "Least mass, exact", kNeither, kShare},
    {"select_over_dense", "Selection over dense attention", kLower, kShare},
    {"append_over_dense", "Appending over dense attention", kLower, kShare},
    {"flops_over_dense", "FLOPs of selection over dense", kLower, kShare},
    {"flops", "FLOPs", kLower, kWhole},
    {"score_flops", "FLOPs of scoring", kLower, kWhole},
    {"attend_flops", "FLOPs of attention", kLower, kWhole},
    {"bytes", "Bytes read", kLower, kWhole},
    {"together_bytes", "Bytes read with all restrictions", kLower, kWhole},
    {"metadata_bytes", "Bytes of metadata", kLower, kWhole},
    // geometry and query selection: descriptions, of which none is better
    {"explained_first", "Variance of the first axis", kNeither, kShare},
    {"explained_shown", "Variance of the shown axes", kNeither, kShare},
    {"query_clustering", "Clustering of queries", kNeither, kShare},
    {"key_clustering", "Clustering of keys", kNeither, kShare},
    {"key_clustering_before_rope", "Clustering of keys before RoPE", kNeither, kShare},
    {"rope_share", "Spread of keys that RoPE makes", kNeither, kShare},
    {"mean_query_mean_key", "Cosine of mean query and mean key", kNeither, kShare},
    {"q_norm_mean", "Norm of queries, mean", kNeither, kShare},
    {"q_norm_p05", "Norm of queries, 5th percentile", kNeither, kShare},
    {"q_norm_p95", "Norm of queries, 95th percentile", kNeither, kShare},
    {"k_norm_mean", "Norm of keys, mean", kNeither, kShare},
    {"k_norm_p05", "Norm of keys, 5th percentile", kNeither, kShare},
    {"k_norm_p95", "Norm of keys, 95th percentile", kNeither, kShare},
    {"v_norm_mean", "Norm of values, mean", kNeither, kShare},
    {"v_norm_p05", "Norm of values, 5th percentile", kNeither, kShare},
    {"v_norm_p95", "Norm of values, 95th percentile", kNeither, kShare},
    {"pearson_mean", "Pearson, mean", kNeither, kShare},
    {"pearson_log_mean", "Pearson of log weights, mean", kNeither, kShare},
    {"pearson_log_best", "Pearson of log weights, best head", kNeither, kShare},
    {"spearman_mean", "Spearman, mean", kNeither, kShare},
    {"partial_log_mean", "Partial correlation of log weights, mean", kNeither, kShare},
    {"chunk_pearson_log_mean", "Pearson of log weights within chunks", kNeither, kShare},
    {"prompt_pearson", "Pearson, prompt", kNeither, kShare},
    {"prompt_pearson_log", "Pearson of log weights, prompt", kNeither, kShare},
    {"prompt_spearman", "Spearman, prompt", kNeither, kShare},
    {"prompt_partial_pearson", "Partial Pearson, prompt", kNeither, kShare},
    {"prompt_partial_spearman", "Partial Spearman, prompt", kNeither, kShare},
    {"chunk_pearson", "Pearson, chunk", kNeither, kShare},
    {"chunk_pearson_log", "Pearson of log weights, chunk", kNeither, kShare},
    {"chunk_spearman", "Spearman, chunk", kNeither, kShare},
    {"chunk_partial_pearson", "Partial Pearson, chunk", kNeither, kShare},
    {"chunk_partial_spearman", "Partial Spearman, chunk", kNeither, kShare},
    {"within_chunk", "Correlation within chunks", kNeither, kShare},
    {"position_log_weight", "Correlation of position and log weight", kNeither, kShare},
    {"position_prompt_s_q", "Correlation of position and S_q", kNeither, kShare},
    {"partial_positive", "Heads with positive partial correlation", kNeither, kShare},
    {"best_pearson_log", "Pearson of log weights, best head", kNeither, kShare},
    {"best_partial_pearson", "Partial Pearson, best head", kNeither, kShare},
};

/// The ends of a number's interval, or of its turns.
constexpr std::pair<std::string_view, std::string_view> kEnds[] = {{"_low", ", lower end"},
                                                                   {"_high", ", upper end"}};

/// "nucleus_0.95": the share is part of the name.
constexpr std::string_view kNucleus = "nucleus_0.";

}  // namespace

std::string format_number(double value, const NumberFormat& format) {
  if (std::isnan(value)) return "-";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  const double shown = format.percent ? 100.0 * value : value;
  std::string text = fmt::format("{:.{}f}", shown, format.digits);
  const bool is_zero = text.find_first_not_of("-0.") == std::string::npos;
  if (is_zero && text.front() == '-') text.erase(0, 1);  // -0.000 is 0.000
  if (format.plus_sign && text.front() != '-') text.insert(0, 1, '+');
  return format.percent_sign ? text + "%" : text;
}

std::optional<MetricInfo> find_metric(std::string_view column) {
  for (const KnownMetric& metric : kKnown) {
    if (metric.column != column) continue;
    return MetricInfo{std::string(metric.title), metric.better, metric.format,
                      std::string(metric.quantity.empty() ? column : metric.quantity)};
  }
  for (const auto& [ending, words] : kEnds) {
    if (!column.ends_with(ending)) continue;
    if (auto of = find_metric(column.substr(0, column.size() - ending.size())))
      return MetricInfo{of->title + std::string(words), Better::neither, of->format,
                        std::string(column)};
  }
  if (column.starts_with(kNucleus)) {
    return MetricInfo{fmt::format("Keys for p = 0.{}", column.substr(kNucleus.size())),
                      Better::neither, kTenths, std::string(column)};
  }
  return std::nullopt;
}

}  // namespace kvscope

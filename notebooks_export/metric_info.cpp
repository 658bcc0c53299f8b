#include "notebooks_export/metric_info.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace kvscope {

namespace {

struct KnownMetric {
  std::string_view part;  // the column's name is this, or has it between underscores
  std::string_view title;
  Better better;
  NumberFormat format;
};

constexpr NumberFormat kShare{3, false, false, false};
constexpr NumberFormat kPercent{1, true, true, false};
constexpr NumberFormat kPoints{2, true, false, false};
constexpr NumberFormat kWhole{0, false, false, false};
constexpr NumberFormat kTenths{1, false, false, false};

/// More special names first: "eval_reduction_per_kv_head" is a reduction, "oracle_recall" a recall.
constexpr std::array kKnown = {
    KnownMetric{"accuracy", "Accuracy", Better::higher, kPoints},
    KnownMetric{"exact_match", "Exact match", Better::higher, kPoints},
    KnownMetric{"score", "Score", Better::higher, kPoints},
    KnownMetric{"log_perplexity", "Log-perplexity", Better::lower, kShare},
    KnownMetric{"perplexity", "Perplexity", Better::lower, kShare},
    KnownMetric{"ppl", "Perplexity", Better::lower, kShare},
    KnownMetric{"nll", "Negative log-likelihood", Better::lower, kShare},
    KnownMetric{"loss", "Loss", Better::lower, kShare},
    KnownMetric{"kv_reduction", "KV reduction", Better::higher, kPercent},
    KnownMetric{"reduction", "Reduction", Better::higher, kPercent},
    KnownMetric{"output_error_rel", "Relative output error", Better::lower, kShare},
    KnownMetric{"output_error_raw", "Raw output error", Better::lower, kShare},
    KnownMetric{"output_error", "Output error", Better::lower, kShare},
    KnownMetric{"recall10", "Top-10 recall", Better::higher, kShare},
    KnownMetric{"recallk", "Top-k recall", Better::higher, kShare},
    KnownMetric{"recall", "Recall", Better::higher, kShare},
    KnownMetric{"mass_p5", "5th percentile of the attention kept", Better::higher, kShare},
    KnownMetric{"mass_p05", "5th percentile of the attention kept", Better::higher, kShare},
    KnownMetric{"mass_min", "Least attention kept", Better::higher, kShare},
    KnownMetric{"mass", "Attention kept", Better::higher, kShare},
    KnownMetric{"jaccard", "Jaccard index with the oracle", Better::higher, kShare},
    KnownMetric{"kl", "KL divergence", Better::lower, kShare},
    KnownMetric{"total_variation", "Total variation", Better::lower, kShare},
    KnownMetric{"violations", "Violations", Better::lower, kWhole},
    KnownMetric{"acceptance", "Acceptance length", Better::higher, {2, false, false, false}},
    KnownMetric{"accepted", "Accepted tokens", Better::higher, {2, false, false, false}},
    KnownMetric{"tokens_per_pass", "Tokens per pass", Better::higher, {2, false, false, false}},
    KnownMetric{"tokens_per_second", "Tokens/s", Better::higher, kTenths},
    KnownMetric{"speedup", "Speedup", Better::higher, {2, false, false, false}},
    KnownMetric{"latency", "Latency", Better::lower, kShare},
    KnownMetric{"ttft", "TTFT", Better::lower, kShare},
    KnownMetric{"seconds", "Seconds", Better::lower, kShare},
    KnownMetric{"flops", "FLOPs", Better::lower, kWhole},
    KnownMetric{"bytes", "Bytes", Better::lower, kWhole},
    KnownMetric{"kept", "Keys kept", Better::neither, kTenths},
    KnownMetric{"union", "Keys loaded", Better::neither, kTenths},
    KnownMetric{"churn", "Churn", Better::neither, kShare},
    KnownMetric{"sink_share", "Share of the sinks", Better::neither, kShare},
};

bool names(std::string_view column, std::string_view part) {
  for (std::size_t at = column.find(part); at != std::string_view::npos;
       at = column.find(part, at + 1)) {
    const std::size_t end = at + part.size();
    if ((at == 0 || column[at - 1] == '_') && (end == column.size() || column[end] == '_'))
      return true;
  }
  return false;
}

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
    if (names(column, metric.part))
      return MetricInfo{std::string(metric.title), metric.better, metric.format};
  }
  return std::nullopt;
}

}  // namespace kvscope

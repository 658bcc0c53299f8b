#include "analysis/sweep/sweep_rows.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "analysis/base/measure_layers.hpp"
#include "analysis/base/replay_means.hpp"
#include "analysis/sweep/match_replay.hpp"
#include "core/base/number_text.hpp"

namespace kvscope {

namespace {

/// Metrics whose means have a bootstrap interval.
struct Ends {
  ReplayMetric metric;
  SweepNumber low;
  SweepNumber high;
};
constexpr Ends kEnds[] = {
    {ReplayMetric::mass, SweepNumber::mass_low, SweepNumber::mass_high},
    {ReplayMetric::recall10, SweepNumber::recall10_low, SweepNumber::recall10_high},
    {ReplayMetric::output_error_rel, SweepNumber::output_error_rel_low,
     SweepNumber::output_error_rel_high},
};

/// Of heads that look far, each with the same weight, what they keep there; NaN if none does.
double far_mass(const LayerReplay& replay, const PairReplay& pair, std::size_t first,
                std::size_t last) {
  Mean kept;
  for (std::size_t head = first; head < last; ++head) {
    const double share = mean_of(replay, pair, ReplayMetric::far_share, head, head + 1);
    if (share > 0.0)
      kept.add(mean_of(replay, pair, ReplayMetric::far_kept, head, head + 1) / share);
  }
  return kept.value();
}

/// What `less` lacks of `most`, without the last digits of two means of the same numbers.
double lost(double most, double less) {
  return std::abs(most - less) < 1e-12 ? 0.0 : most - less;
}

/// One row over heads [first, last) of the replay.
SweepRow make_row(const LayerReplay& replay, const PairReplay& pair, const RowLabels& labels,
                  std::size_t first, std::size_t last, std::optional<Index> q_head) {
  const std::size_t n_calls = replay.calls.size();
  const auto n_rows = static_cast<std::size_t>(replay.row_begin.back());
  SweepRow row;
  row.numbers.fill(kNan);
  row.text(SweepText::trace) = labels.trace;
  row.text(SweepText::phase) = labels.phase;
  row.text(SweepText::selector) = labels.pair.selector.text();
  row.text(SweepText::budget_kind) = kind_of(labels.pair.budget);
  row.text(SweepText::match) = labels.match.target;
  row.text(SweepText::setting) = labels.match.setting;
  row.text(SweepText::match_note) = labels.match.note;
  row.number(SweepNumber::layer) = static_cast<double>(replay.layer);
  if (q_head) {
    row.number(SweepNumber::q_head) = static_cast<double>(*q_head);
    row.number(SweepNumber::kv_head) = static_cast<double>(*q_head / labels.group);
  }
  row.number(SweepNumber::calls) = static_cast<double>(n_calls);
  row.number(SweepNumber::rows) = static_cast<double>(n_rows * (last - first));
  if (labels.pair.budget) row.number(SweepNumber::budget) = labels.pair.budget->value;
  row.number(SweepNumber::dense) = pair.is_dense ? 1.0 : 0.0;
  row.number(SweepNumber::window) = replay.has_window ? 1.0 : 0.0;
  for (std::size_t m = 0; m < kReplayMetrics; ++m) {  // to the column of its name
    const auto metric = static_cast<ReplayMetric>(m);
    const auto column = std::ranges::find(
        kSweepNumbers, metric == ReplayMetric::mass ? "mass_mean" : kReplayMetricNames[m]);
    if (column == kSweepNumbers.end()) continue;
    const bool is_sum = metric >= ReplayMetric::score_flops;  // a layer's row adds heads up
    row.numbers[static_cast<std::size_t>(column - kSweepNumbers.begin())] =
        mean_of(replay, pair, metric, first, last) *
        (is_sum ? static_cast<double>(last - first) : 1.0);
  }
  row.number(SweepNumber::density) =
      replay.has_window ? 1.0 : row.number(SweepNumber::kept) / mean_visible(replay);
  row.number(SweepNumber::far_mass) = far_mass(replay, pair, first, last);
  row.number(SweepNumber::lost_choosing) =
      lost(row.number(SweepNumber::best_mass), row.number(SweepNumber::mass_mean));
  row.number(SweepNumber::match_reached) = labels.match.reached.value_or(kNan);
  const std::span<const double> masses(pair.mass_rows.data() + first * n_rows,
                                       (last - first) * n_rows);
  row.number(SweepNumber::mass_p05) = quantile(masses, 0.05);
  row.number(SweepNumber::mass_min) = masses.empty() ? kNan : *std::ranges::min_element(masses);
  // the same stream for all metrics and methods: the same calls are drawn, so that equal rows have
  // equal intervals
  Bootstrap bootstrap(labels.n_resamples,
                      {labels.seed, labels.trace_index, static_cast<std::uint64_t>(replay.layer),
                       q_head ? static_cast<std::uint64_t>(*q_head) + 1 : 0});
  const std::vector<double> weights = row_weights(replay);
  for (const Ends& ends : kEnds) {
    std::vector<double> by_call(n_calls, 0.0);  // rows of a call depend on each other: whole calls
    for (std::size_t c = 0; c < n_calls; ++c) {
      for (std::size_t h = first; h < last; ++h)
        by_call[c] += pair.of(ends.metric)[h * n_calls + c];
      by_call[c] /= static_cast<double>(last - first);
    }
    const Interval interval = bootstrap.mean(by_call, weights);
    row.number(ends.low) = interval.low;
    row.number(ends.high) = interval.high;
  }
  return row;
}

}  // namespace

void Bootstrap::draw(std::size_t n_values) {
  if (n_values_ == n_values) return;
  n_values_ = n_values;
  drawn_.resize(static_cast<std::size_t>(n_resamples_) * n_values);
  std::uint64_t counter = 0;
  for (std::uint32_t& at : drawn_) {
    const auto place =
        static_cast<std::size_t>(rng_.uniform(counter++) * static_cast<double>(n_values));
    at = static_cast<std::uint32_t>(std::min(place, n_values - 1));
  }
}

Interval Bootstrap::mean(std::span<const double> values, std::span<const double> weights) {
  std::vector<double> known, known_weights;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) continue;
    known.push_back(values[i]);
    known_weights.push_back(weights.empty() ? 1.0 : weights[i]);
  }
  if (known.empty() || n_resamples_ < 1) return {kNan, kNan};
  draw(known.size());
  std::vector<double> means;
  for (std::size_t first = 0; first < drawn_.size(); first += known.size()) {
    double sum = 0.0;
    double total = 0.0;
    for (const std::uint32_t at : std::span(drawn_).subspan(first, known.size())) {
      sum += known_weights[at] * known[at];
      total += known_weights[at];
    }
    means.push_back(sum / total);
  }
  std::ranges::sort(means);  // both percentiles sort: once is enough
  return {quantile(means, 0.025), quantile(means, 0.975)};
}

Interval bootstrap_mean(std::span<const double> values, Index n_resamples,
                        std::initializer_list<std::uint64_t> stream) {
  return Bootstrap(n_resamples, stream).mean(values);
}

void split_losses(std::vector<SweepBlock>& blocks) {
  std::map<std::tuple<std::size_t, std::size_t, std::string>, const SweepBlock*> ceilings;
  const auto place_of = [](const SweepBlock& block) {
    return std::tuple(block.trace, block.layer_slot, block.rows.front().text(SweepText::match));
  };
  for (const SweepBlock& block : blocks) {
    if (block.rows.front().text(SweepText::selector) == "ceiling")
      ceilings[place_of(block)] = &block;
  }
  for (SweepBlock& block : blocks) {
    const auto ceiling = ceilings.find(place_of(block));
    const bool is_met = block.rows.front().text(SweepText::match_note).empty();
    if (ceiling == ceilings.end() || !is_met) continue;
    for (std::size_t r = 0; r < block.rows.size(); ++r)
      block.rows[r].number(SweepNumber::lost_dividing) =
          lost(ceiling->second->rows[r].number(SweepNumber::mass_mean),
               block.rows[r].number(SweepNumber::best_mass));
  }
}

SweepBlock empty_sweep_block(const SweepResult& result, SweepBlock block) {
  const SweepTraceInfo& trace = result.traces[block.trace];
  // A pair's label is its method, and behind a blank its budget or what it is to meet.
  const std::string& label = result.pairs[block.pair];
  const std::size_t blank = label.rfind(' ');
  const std::string amount = blank == std::string::npos ? "" : label.substr(blank + 1);
  const bool is_matched = result.config.contains("match");
  const std::size_t equals = amount.find('=');
  SweepRow row;
  row.numbers.fill(kNan);
  row.text(SweepText::trace) = trace.name;
  row.text(SweepText::phase) = result.config.value("phase", "");
  row.text(SweepText::selector) = label.substr(0, blank);
  row.text(SweepText::budget_kind) =
      is_matched || amount.empty() ? "none" : amount.substr(0, equals);
  if (is_matched) row.text(SweepText::match) = amount;
  if (!is_matched && equals != std::string::npos)
    row.number(SweepNumber::budget) =
        number_from<double>(std::string_view(amount).substr(equals + 1)).value_or(kNan);
  row.number(SweepNumber::layer) = static_cast<double>(trace.layers[block.layer_slot]);
  block.rows.push_back(row);
  for (const Index q_head : trace.q_heads) {
    row.number(SweepNumber::q_head) = static_cast<double>(q_head);
    block.rows.push_back(row);
  }
  block.grid.assign(kReplayMetrics * trace.q_heads.size() * trace.calls.size(),
                    static_cast<float>(kNan));
  block.ages.assign(kAgeBins, 0);
  return block;
}

SweepBlock make_sweep_block(const LayerReplay& replay, std::size_t pair_slot,
                            std::size_t layer_slot, const RowLabels& labels) {
  const PairReplay& pair = replay.pairs[pair_slot];
  SweepBlock block{
      .trace = labels.trace_index, .pair = labels.pair_index, .layer_slot = layer_slot};
  const std::size_t n_heads = replay.q_heads.size();
  block.rows.push_back(make_row(replay, pair, labels, 0, n_heads, std::nullopt));
  block.rows[0].number(SweepNumber::predicted_us) = labels.predicted_us;
  block.rows[0].number(SweepNumber::predicted_dense_us) = labels.predicted_dense_us;
  block.rows[0].number(SweepNumber::predicted_speedup) =
      labels.predicted_dense_us / labels.predicted_us;
  for (std::size_t h = 0; h < n_heads; ++h)
    block.rows.push_back(make_row(replay, pair, labels, h, h + 1, replay.q_heads[h]));
  for (const auto& values : pair.values) {
    for (double x : values) block.grid.push_back(static_cast<float>(x));
  }
  block.ages.assign(pair.ages.begin(), pair.ages.end());
  return block;
}

}  // namespace kvscope

#include "analysis/cost/trace_cost.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "analysis/base/analysis.hpp"
#include "core/base/error.hpp"

namespace kvscope {

namespace {

using Json = nlohmann::ordered_json;

constexpr double kLongestContext = 16.0 * 1024 * 1024;

bool keeps_count(const ReplayPair& pair) {
  if (pair.budget)
    return pair.budget->kind == Budget::Kind::tokens || pair.budget->kind == Budget::Kind::pages;
  return pair.selector.caps().is_static;  // a window; what decides by mass grows
}

std::string kind_of_budget(const std::optional<Budget>& budget) {
  if (!budget) return "none";
  const std::string text = budget->to_string();
  return text.substr(0, text.find('='));
}

/// The mean of several calls as one: their sums divided.
LayerWork mean_work(const std::vector<LayerWork>& calls) {
  LayerWork mean = calls.front();
  const auto n = static_cast<double>(calls.size());
  const auto average = [&](auto&& member) {
    double sum = 0.0;
    for (const LayerWork& one : calls) sum += member(one);
    return sum / n;
  };
  mean.shape.n_tok = average([](const LayerWork& w) { return w.shape.n_tok; });
  mean.shape.n_ctx = average([](const LayerWork& w) { return w.shape.n_ctx; });
  mean.attend.pairs = average([](const LayerWork& w) { return w.attend.pairs; });
  mean.attend.keys = average([](const LayerWork& w) { return w.attend.keys; });
  mean.attend.runs = average([](const LayerWork& w) { return w.attend.runs; });
  mean.attend.rows = average([](const LayerWork& w) { return w.attend.rows; });
  mean.score_flops = average([](const LayerWork& w) { return w.score_flops; });
  mean.score_bytes = average([](const LayerWork& w) { return w.score_bytes; });
  mean.append_bytes = average([](const LayerWork& w) { return w.append_bytes; });
  mean.ranked = average([](const LayerWork& w) { return w.ranked; });
  mean.summaries = average([](const LayerWork& w) { return w.summaries; });
  mean.is_dense =
      std::all_of(calls.begin(), calls.end(), [](const LayerWork& w) { return w.is_dense; });
  return mean;
}

/// What the layers with a sliding window take, all together.
double window_seconds(const TraceInfo& info, const CallShape& shape,
                      const HardwareProfile& hardware, const CostSetting& setting) {
  double seconds = 0.0;
  for (const auto& window : info.window) {
    if (window) seconds += predict_layer(dense_work(shape, window), hardware, setting).total();
  }
  return seconds;
}

std::optional<RestOfModel> rest_of(const TraceInfo& info, double weight_bits) {
  if (info.model_config.empty()) return std::nullopt;
  try {
    return rest_of_model(parse_model_config(info.model_config, "the recording's model"),
                         weight_bits);
  } catch (const Error&) {
    return std::nullopt;  // a model that this program does not compute, recorded elsewhere
  }
}

}  // namespace

void WorkCollector::add(const AnsweredCall& answer) {
  const LayerWork work = measured_work(answer.selection, answer.cost, n_q_, n_kv_, d_head_,
                                       answer.tokens, answer.page_size);
  put(answer.pair, answer.layer, answer.call, work);
}

void WorkCollector::put(std::size_t pair, Index layer, std::size_t call, const LayerWork& work) {
  const std::scoped_lock lock(mutex_);
  works_[{pair, layer}][call] = work;
}

std::vector<LayerWork> WorkCollector::calls(std::size_t pair, Index layer) const {
  std::vector<LayerWork> out;
  const std::scoped_lock lock(mutex_);
  const auto found = works_.find({pair, layer});
  if (found == works_.end()) return out;
  for (const auto& [call, work] : found->second) out.push_back(work);
  return out;
}

double usual_kv_bytes(const HardwareProfile& hardware) {
  return hardware.kind == "cpu" ? 4.0 : 2.0;
}

LayerCost mean_cost(const std::vector<LayerWork>& calls, const HardwareProfile& hardware,
                    const CostSetting& setting) {
  LayerCost cost;
  for (const LayerWork& work : calls) {
    cost.stages += predict_layer(work, hardware, setting);
    cost.dense += predict_layer(dense_work(work.shape), hardware, setting).total();
  }
  const double share = 1.0 / static_cast<double>(calls.size());
  cost.stages = cost.stages.scaled(share);
  cost.dense *= share;
  return cost;
}

std::vector<LayerWork> calls_at_length(const std::vector<LayerWork>& calls, double count) {
  const bool stays_dense =
      std::all_of(calls.begin(), calls.end(), [](const LayerWork& w) { return w.is_dense; });
  std::vector<LayerWork> out;
  std::copy_if(calls.begin(), calls.end(), std::back_inserter(out), [&](const LayerWork& work) {
    const CallShape& shape = work.shape;
    const bool leaves_out = !work.is_dense && work.attend.keys < shape.n_kv * shape.n_ctx;
    return shape.n_ctx - shape.n_tok >= count && (stays_dense || leaves_out);
  });
  return out;
}

std::optional<double> break_even_context(const std::vector<LayerWork>& layers, bool keeps_count,
                                         const HardwareProfile& hardware,
                                         const CostSetting& setting, double least) {
  const auto gain = [&](double n_ctx) {  // seconds that the method saves
    double seconds = 0.0;
    for (const LayerWork& work : layers) {
      CallShape shape = work.shape;
      shape.n_ctx = n_ctx;
      seconds += predict_layer(dense_work(shape), hardware, setting).total() -
                 predict_layer(at_context(work, n_ctx, keeps_count), hardware, setting).total();
    }
    return seconds;
  };
  const bool is_dense =
      std::all_of(layers.begin(), layers.end(), [](const LayerWork& w) { return w.is_dense; });
  if (layers.empty() || is_dense || gain(kLongestContext) < 0.0) return std::nullopt;
  for (const LayerWork& work : layers) {
    least = std::max(least, work.shape.n_tok + 1.0);
    if (keeps_count && !work.is_dense) least = std::max(least, work.attend.keys / work.shape.n_kv);
  }
  double high = kLongestContext;
  while (high > 2.0 * least && gain(high / 2.0) >= 0.0) high /= 2.0;
  double low = std::max(high / 2.0, least);
  if (gain(low) >= 0.0) return std::ceil(low);
  while (high - low > 1.0) {
    const double middle = 0.5 * (low + high);
    (gain(middle) >= 0.0 ? high : low) = middle;
  }
  return std::ceil(high);
}

namespace {

/// A pair's work in all layers: as measured, and the calls from which other contexts follow.
struct PairWork {
  bool keeps_count = false;
  double count = 0.0;                         // keys of a list by the budget
  std::vector<std::vector<LayerWork>> calls;  // of the layers without a window
  std::vector<std::vector<LayerWork>> at_length;
  std::string too_short;  // what to record; empty if every layer has calls at length
};

PairWork work_of_pair(const ReplayPair& pair, const std::vector<Index>& layers,
                      const WorkCollector& works, std::size_t p) {
  PairWork out;
  out.keeps_count = keeps_count(pair);
  if (out.keeps_count && pair.budget) {
    constexpr Index kEnough = Index{1} << 40;
    out.count = static_cast<double>(pair.budget->tokens(kEnough, pair.selector.caps().page_size));
  }
  for (const Index layer : layers) {
    std::vector<LayerWork> calls = works.calls(p, layer);
    if (calls.empty()) continue;
    out.at_length.push_back(out.keeps_count ? calls_at_length(calls, out.count) : calls);
    out.calls.push_back(std::move(calls));
    if (!out.at_length.back().empty() || !out.too_short.empty()) continue;
    CallShape longest;  // where even that call keeps everything, its lists need twice the keys
    for (const LayerWork& work : out.calls.back()) {
      longest.n_tok = std::max(longest.n_tok, work.shape.n_tok);
      longest.n_ctx = std::max(longest.n_ctx, work.shape.n_ctx);
    }
    const bool has_keys = longest.n_ctx - longest.n_tok >= out.count;
    out.too_short = fmt::format(
        "{}{}: no call of layer {} has {} keys before it and leaves some out, so that this "
        "recording ({} tokens) says nothing about longer contexts; record {} tokens or more",
        pair.selector.text(), pair.budget ? " with " + pair.budget->to_string() : std::string(),
        layer, out.count, longest.n_ctx,
        2.0 * (has_keys ? longest.n_ctx : out.count + longest.n_tok));
  }
  if (out.calls.empty())
    throw ConfigError("cost: every layer that was asked for has a sliding window");
  return out;
}

/// Layers of one call: means over the calls at their own contexts, or all at one.
struct MeanLayers {
  LayerCost cost;  // mean over the layers
  std::vector<LayerWork> works;
};

MeanLayers mean_layers(const std::vector<std::vector<LayerWork>>& layers,
                       std::optional<double> context, bool keeps_count,
                       const HardwareProfile& hardware, const CostSetting& setting) {
  MeanLayers mean;
  const double share = 1.0 / static_cast<double>(layers.size());
  for (std::vector<LayerWork> calls : layers) {
    if (context) {
      for (LayerWork& work : calls) work = at_context(work, *context, keeps_count);
    }
    const LayerCost one = mean_cost(calls, hardware, setting);
    mean.cost.stages += one.stages.scaled(share);
    mean.cost.dense += share * one.dense;
    mean.works.push_back(mean_work(calls));
  }
  return mean;
}

std::optional<double> break_even_of(const PairWork& work, const HardwareProfile& hardware,
                                    const CostSetting& setting) {
  if (!work.too_short.empty()) return std::nullopt;
  std::vector<LayerWork> means;
  for (const auto& calls : work.at_length) means.push_back(mean_work(calls));
  return break_even_context(means, work.keeps_count, hardware, setting,
                            work.count + means.front().shape.n_tok);
}

}  // namespace

Json trace_cost_report(const TraceInfo& info, const std::vector<Index>& layers,
                       const std::vector<ReplayPair>& pairs, const WorkCollector& works,
                       Phase phase, const CostOptions& options) {
  Json rows = Json::array();
  const std::optional<RestOfModel> rest = rest_of(info, options.weight_bits);
  Index n_full = 0;  // layers of the model without a window
  for (Index layer = 0; layer < info.n_layers; ++layer) {
    const bool has_window =
        !info.window.empty() && info.window[static_cast<std::size_t>(layer)].has_value();
    n_full += has_window ? 0 : 1;
  }
  std::vector<PairWork> of_pairs;
  for (std::size_t p = 0; p < pairs.size(); ++p)
    of_pairs.push_back(work_of_pair(pairs[p], layers, works, p));
  const bool says_nothing = std::all_of(of_pairs.begin(), of_pairs.end(),
                                        [](const PairWork& one) { return !one.too_short.empty(); });
  if (says_nothing && !options.contexts.empty() && !of_pairs.empty())
    throw ConfigError("cost: " + of_pairs.front().too_short);
  for (const HardwareProfile& hardware : options.hardware) {
    for (const double batch : options.batches) {
      const CostSetting setting{batch, options.kv_bytes.value_or(usual_kv_bytes(hardware)),
                                std::nullopt};
      for (std::size_t c = 0; c <= options.contexts.size(); ++c) {
        for (std::size_t p = 0; p < pairs.size(); ++p) {
          const PairWork& work = of_pairs[p];
          if (c > 0 && !work.too_short.empty()) continue;
          const auto [cost, means] =
              c == 0 ? mean_layers(work.calls, std::nullopt, work.keeps_count, hardware, setting)
                     : mean_layers(work.at_length, options.contexts[c - 1], work.keeps_count,
                                   hardware, setting);
          const auto n = static_cast<double>(means.size());
          const CallShape& shape = means.front().shape;
          Json row = {{"hardware", hardware.name},
                      {"selector", pairs[p].selector.text()},
                      {"budget_kind", kind_of_budget(pairs[p].budget)},
                      {"budget", pairs[p].budget ? Json(pairs[p].budget->value) : Json(nullptr)},
                      {"phase", std::string(name_of(phase))},
                      {"batch", batch},
                      {"context", shape.n_ctx},
                      {"extrapolated", c > 0 ? 1 : 0},
                      {"queries", shape.n_tok}};
          double union_keys = 0.0;
          double runs = 0.0;
          for (const LayerWork& one : means) {
            union_keys += one.attend.keys / (shape.n_kv * n);
            runs += one.attend.runs / (shape.n_kv * n);
          }
          row["union"] = union_keys;
          row["runs"] = runs;
          for (std::size_t s = 0; s < kCostStages.size(); ++s)
            row[std::string(kCostStages[s]) + "_us"] = 1e6 * cost.stages.seconds[s];
          row["predicted_us"] = 1e6 * cost.stages.total();
          row["predicted_dense_us"] = 1e6 * cost.dense;
          row["predicted_speedup"] = cost.dense / cost.stages.total();
          const auto even = break_even_of(work, hardware, setting);
          row["break_even"] = even ? Json(*even) : Json(nullptr);
          const double others = window_seconds(info, shape, hardware, setting);
          const double all = static_cast<double>(n_full) * cost.stages.total() + others;
          const double all_dense = static_cast<double>(n_full) * cost.dense + others;
          const double more = rest ? predict_rest(*rest, shape.n_tok, hardware, setting) : 0.0;
          row["call_us"] = rest ? Json(1e6 * (all + more)) : Json(nullptr);
          row["dense_call_us"] = rest ? Json(1e6 * (all_dense + more)) : Json(nullptr);
          row["call_speedup"] = rest ? Json((all_dense + more) / (all + more)) : Json(nullptr);
          const double cache = 2.0 * static_cast<double>(info.n_layers) * shape.n_kv * shape.n_ctx *
                               shape.d_head * setting.kv_bytes * batch;
          row["memory_share"] = ((rest ? rest->weight_bytes : 0.0) + cache) / hardware.memory.value;
          row["note"] = work.too_short;
          rows.push_back(std::move(row));
        }
      }
    }
  }
  return {{"kind", "cost"},
          {"model", info.model_name},
          {"n_q", info.n_q},
          {"n_kv", info.n_kv},
          {"d_head", info.d_head},
          {"n_layers", info.n_layers},
          {"measured_layers", layers},
          {"weight_bits", options.weight_bits},
          {"rows", rows}};
}

}  // namespace kvscope

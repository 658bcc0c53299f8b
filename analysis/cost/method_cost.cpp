#include "analysis/cost/method_cost.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/base/statistics.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"

namespace kvscope {

namespace {

constexpr double kLongestPaying = 16.0 * 1024 * 1024;

bool keeps_count(const ReplayPair& pair) {
  if (pair.budget)
    return pair.budget->kind == Budget::Kind::tokens || pair.budget->kind == Budget::Kind::pages;
  return pair.selector.caps().is_static;  // a window; what decides by mass grows
}

/// Layers with a sliding window, by its length.
std::map<Index, double> windows_of(const CostModel& model) {
  std::map<Index, double> windows;
  for (const auto& window : model.window) {
    if (window) windows[*window] += 1.0;
  }
  return windows;
}

/// What the layers with a sliding window take, all together.
double window_seconds(const CostModel& model, CallShape shape, const HardwareProfile& hardware,
                      const CostSetting& setting) {
  double seconds = 0.0;
  if (const auto& own = model.window_shape) {
    shape.n_q = static_cast<double>((*own)[0]);
    shape.n_kv = static_cast<double>((*own)[1]);
    shape.d_head = static_cast<double>((*own)[2]);
  }
  for (const auto& [window, n] : windows_of(model))
    seconds += n * predict_layer(dense_work(shape, window), hardware, setting).total();
  return seconds;
}

double n_layers_of(const std::vector<AlikeLayers>& layers) {
  double n = 0.0;
  for (const AlikeLayers& one : layers) n += one.n;
  return n;
}

std::vector<LayerWork> calls_at(std::vector<LayerWork> calls, double n_ctx, bool keeps_count) {
  for (LayerWork& call : calls) call = at_context(call, n_ctx, keeps_count);
  return calls;
}

/// The calls of a layer whose lists are as long as at any longer context. Of a method that keeps a
/// count of keys (`count`, or fixed windows: 0) those are the calls with so many keys before them
/// that leave some out: shorter ones keep what there is. Empty: the text is too short.
std::vector<LayerWork> calls_at_length(const std::vector<LayerWork>& calls, double count) {
  const bool stays_dense =
      std::ranges::all_of(calls, [](const LayerWork& w) { return w.is_dense; });
  std::vector<LayerWork> out;
  std::copy_if(calls.begin(), calls.end(), std::back_inserter(out), [&](const LayerWork& work) {
    const CallShape& shape = work.shape;
    const bool leaves_out = !work.is_dense && work.attend.keys < shape.n_kv * shape.n_ctx;
    return shape.n_ctx - shape.n_tok >= count && (stays_dense || leaves_out);
  });
  return out;
}

}  // namespace

Index CostModel::n_full() const {
  if (window.empty()) return n_layers;
  return std::count(window.begin(), window.end(), std::nullopt);
}

CostModel cost_model(const ModelConfig& config, std::string name, double weight_bits) {
  CostModel model{.name = std::move(name),
                  .n_layers = config.n_layers,
                  .n_q = config.n_q,
                  .n_kv = config.n_kv,
                  .d_head = config.d_head,
                  .window = config.window};
  model.rest = rest_of_model(config, weight_bits);
  model.weight_bytes = static_cast<double>(config.n_parameters()) * weight_bits / 8.0;
  return model;
}

CostModel cost_model(const TraceInfo& info, double weight_bits) {
  CostModel model{.name = info.model_name,
                  .n_layers = info.n_layers,
                  .n_q = info.n_q,
                  .n_kv = info.n_kv,
                  .d_head = info.d_head,
                  .window = info.window};
  std::optional<std::array<Index, 3>> full;
  for (Index layer = 0; layer < std::ssize(info.layer_shapes); ++layer) {
    const LayerShape shape = info.shape(layer);
    const bool is_full = !info.window_of(layer);
    const std::array<Index, 3> found = {info.n_q, shape.n_kv, shape.d_head};
    auto& expected = is_full ? full : model.window_shape;
    if (!expected) expected = found;
    if (found != *expected)
      throw ConfigError(
          "cost: layer {} has {} KV heads of {} channels, another that sees as much has others: "
          "cost knows one shape of layers that see everything and one of those with a window",
          layer, shape.n_kv, shape.d_head);
    if (shape.keys_of >= 0) ++(is_full ? model.n_full_shared : model.n_window_shared);
  }
  if (full) {
    model.n_kv = (*full)[1];
    model.d_head = (*full)[2];
  }
  if (info.model_config.empty()) return model;
  try {
    const ModelConfig config = parse_model_config(info.model_config, "the recording's model");
    const CostModel known = cost_model(config, info.model_name, weight_bits);
    model.rest = known.rest;
    model.weight_bytes = known.weight_bytes;
  } catch (const Error&) {  // a model that this program does not compute, recorded elsewhere
  }
  return model;
}

double memory_bytes(const CostModel& model, double n_ctx, const CostSetting& setting) {
  const Index of_full = model.n_kv * model.d_head;
  const Index of_window =
      model.window_shape ? (*model.window_shape)[1] * (*model.window_shape)[2] : of_full;
  double numbers = static_cast<double>((model.n_full() - model.n_full_shared) * of_full) * n_ctx;
  for (const auto& [window, n] : windows_of(model)) {
    const double n_stored = n - static_cast<double>(model.n_window_shared);
    numbers +=
        n_stored * static_cast<double>(of_window) * std::min(n_ctx, static_cast<double>(window));
  }
  return model.weight_bytes + 2.0 * numbers * setting.kv_bytes * setting.batch;
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

LayerWork mean_work(const std::vector<LayerWork>& calls) {
  LayerWork mean = calls.front();
  const auto sums = numbers_of(mean);
  for (std::size_t c = 1; c < calls.size(); ++c) {
    LayerWork call = calls[c];
    const auto more = numbers_of(call);
    for (std::size_t i = 0; i < sums.size(); ++i) *sums[i] += *more[i];
  }
  for (double* const sum : sums) *sum /= static_cast<double>(calls.size());
  mean.is_dense = std::ranges::all_of(calls, [](const LayerWork& w) { return w.is_dense; });
  return mean;
}

MethodWork method_work(const ReplayPair& pair, const std::vector<Index>& layers,
                       std::vector<AlikeLayers> calls) {
  MethodWork out{.keeps_count = keeps_count(pair)};
  if (out.keeps_count && pair.budget) {
    constexpr Index kEnough = Index{1} << 40;
    out.count = static_cast<double>(pair.budget->tokens(kEnough, pair.selector.caps().page_size));
  }
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (calls[i].calls.empty()) continue;
    std::vector<LayerWork> at_length =
        out.keeps_count ? calls_at_length(calls[i].calls, out.count) : calls[i].calls;
    const bool is_short = at_length.empty();
    out.at_length.push_back({calls[i].n, std::move(at_length)});
    out.calls.push_back(std::move(calls[i]));
    if (!is_short || !out.too_short.empty()) continue;
    CallShape longest;  // where even that call keeps everything, its lists need twice the keys
    for (const LayerWork& work : out.calls.back().calls) {
      longest.n_tok = std::max(longest.n_tok, work.shape.n_tok);
      longest.n_ctx = std::max(longest.n_ctx, work.shape.n_ctx);
    }
    const bool has_keys = longest.n_ctx - longest.n_tok >= out.count;
    out.too_short = fmt::format(
        "{}{}: no call of layer {} has {} keys before it and leaves some out, so that this "
        "recording ({} tokens) says nothing about longer contexts; record {} tokens or more",
        pair.selector.text(), pair.budget ? " with " + pair.budget->to_string() : std::string(),
        layers[i], out.count, longest.n_ctx,
        2.0 * (has_keys ? longest.n_ctx : out.count + longest.n_tok));
  }
  if (out.calls.empty())
    throw ConfigError("cost: every layer that was asked for has a sliding window");
  return out;
}

CallCost call_cost(const CostModel& model, const MethodWork& work, std::optional<double> context,
                   const HardwareProfile& hardware, const CostSetting& setting) {
  const std::vector<AlikeLayers>& layers = context ? work.at_length : work.calls;
  CallCost cost;
  const double n_layers = n_layers_of(layers);
  for (AlikeLayers one : layers) {
    if (context) one.calls = calls_at(one.calls, *context, work.keeps_count);
    const double share = one.n / n_layers;
    const LayerCost of_layer = mean_cost(one.calls, hardware, setting);
    cost.layer.stages += of_layer.stages.scaled(share);
    cost.layer.dense += share * of_layer.dense;
    cost.works.push_back({one.n, {mean_work(one.calls)}});
    const LayerWork& mean = cost.works.back().calls.front();
    cost.union_keys += one.n * mean.attend.keys / (mean.shape.n_kv * n_layers);
    cost.runs += one.n * mean.attend.runs / (mean.shape.n_kv * n_layers);
  }
  if (!model.rest) return cost;
  const auto n_full = static_cast<double>(model.n_full());
  const double others = window_seconds(model, cost.shape(), hardware, setting);
  const double more = predict_rest(*model.rest, cost.shape().n_tok, hardware, setting);
  cost.call = n_full * cost.layer.stages.total() + others + more;
  cost.dense = n_full * cost.layer.dense + others + more;
  return cost;
}

PromptCost prompt_cost(const CostModel& model, const MethodWork& work, double n_ctx,
                       const HardwareProfile& hardware, const CostSetting& setting) {
  PromptCost prompt;
  const double chunk = work.at_length.front().calls.front().shape.n_tok;
  for (double end = std::min(chunk, n_ctx); end <= n_ctx; end += chunk) {
    const CallCost cost = call_cost(model, work, end, hardware, setting);
    const auto n_full = static_cast<double>(model.n_full());
    prompt.seconds += cost.call.value_or(n_full * cost.layer.stages.total());
    prompt.dense += cost.dense.value_or(n_full * cost.layer.dense);
  }
  return prompt;
}

std::optional<double> break_even_of(const MethodWork& work, const HardwareProfile& hardware,
                                    const CostSetting& setting, double gain) {
  if (!work.too_short.empty()) return std::nullopt;
  std::vector<AlikeLayers> layers;
  double least = 0.0;
  bool chooses = false;
  for (const AlikeLayers& one : work.at_length) {
    const LayerWork mean = mean_work(one.calls);
    if (gain != 1.0 && mean.is_dense) continue;
    layers.push_back(one);
    chooses = chooses || !mean.is_dense;
    least = std::max({least, work.count + mean.shape.n_tok, mean.shape.n_tok + 1.0});
    if (work.keeps_count && !mean.is_dense)
      least = std::max(least, mean.attend.keys / mean.shape.n_kv);
  }
  // Seconds, call by call: a mean of calls that choose and calls that do not is neither.
  const auto saved = [&](double n_ctx) {
    double seconds = 0.0;
    for (const AlikeLayers& one : layers) {
      const LayerCost cost =
          mean_cost(calls_at(one.calls, n_ctx, work.keeps_count), hardware, setting);
      seconds += one.n * (gain * cost.dense - cost.stages.total());
    }
    return seconds;
  };
  if (!chooses || saved(kLongestPaying) < 0.0) return std::nullopt;
  double high = kLongestPaying;
  while (high > 2.0 * least && saved(high / 2.0) >= 0.0) high /= 2.0;
  double low = std::max(high / 2.0, least);
  if (saved(low) >= 0.0) return std::ceil(low);
  while (high - low > 1.0) {
    const double middle = 0.5 * (low + high);
    (saved(middle) >= 0.0 ? high : low) = middle;
  }
  return std::ceil(high);
}

Json cost_row(const CostModel& model, const HardwareProfile& hardware, const CostSetting& setting,
              const ReplayPair& pair, Phase phase, const MethodWork& work, const CallCost& cost,
              bool is_scaled) {
  const CallShape& shape = cost.shape();
  Json row = {{"hardware", hardware.name},
              {"selector", pair.selector.text()},
              {"budget_kind", kind_of(pair.budget)},
              {"budget", pair.budget ? Json(pair.budget->value) : Json(nullptr)},
              {"phase", std::string(enum_name(phase))},
              {"batch", setting.batch},
              {"context", shape.n_ctx},
              {"extrapolated", is_scaled ? 1 : 0},
              {"queries", shape.n_tok},
              {"union", cost.union_keys},
              {"runs", cost.runs}};
  const StageTimes& stages = cost.layer.stages;
  for (std::size_t s = 0; s < kCostStages.size(); ++s)
    row[std::string(kCostStages[s]) + "_us"] = 1e6 * stages.seconds[s];
  row["predicted_us"] = 1e6 * stages.total();
  row["predicted_dense_us"] = 1e6 * cost.layer.dense;
  row["predicted_speedup"] = cost.layer.dense / stages.total();
  const auto even = break_even_of(work, hardware, setting);
  row["break_even"] = or_null(even);
  row["call_us"] = cost.call ? Json(1e6 * *cost.call) : Json(nullptr);
  row["dense_call_us"] = cost.dense ? Json(1e6 * *cost.dense) : Json(nullptr);
  row["call_speedup"] = cost.call ? Json(*cost.dense / *cost.call) : Json(nullptr);
  row["memory_share"] = memory_bytes(model, shape.n_ctx, setting) / hardware.memory.value;
  return row;
}

Json list_sizes(const ReplayPair& pair, Phase phase, const MethodWork& work) {
  const bool chooses = std::ranges::any_of(work.at_length, [](const AlikeLayers& one) {
    return !one.calls.empty() && !one.calls.front().is_dense;
  });
  double n = 0.0;
  CallShape shape;
  AttendWork sum;  // of a KV head, or a query of a query head
  double context = 0.0;
  for (const AlikeLayers& one : work.at_length) {
    if (one.calls.empty()) return nullptr;
    double most = 0.0;  // a text's last chunk may be shorter: what it loads is of no other length
    for (const LayerWork& call : one.calls) most = std::max(most, call.shape.n_tok);
    std::vector<LayerWork> whole = one.calls;
    std::erase_if(whole, [&](const LayerWork& call) { return call.shape.n_tok < most; });
    const LayerWork mean = mean_work(whole);
    if (mean.is_dense && chooses) continue;
    shape = mean.shape;
    n += one.n;
    context += one.n * shape.n_ctx;
    sum.keys += one.n * mean.attend.keys / shape.n_kv;
    sum.runs += one.n * mean.attend.runs / shape.n_kv;
    sum.pairs += one.n * mean.attend.pairs / (shape.n_q * shape.n_tok);
  }
  if (!(n > 0.0)) return nullptr;
  return {{"selector", pair.selector.text()},
          {"budget", pair.budget ? Json(pair.budget->to_string()) : Json(nullptr)},
          {"phase", std::string(enum_name(phase))},
          {"queries", shape.n_tok},
          {"context", context / n},
          {"union", sum.keys / n},
          {"runs", sum.runs / n},
          {"kept", sum.pairs / n}};
}

}  // namespace kvscope

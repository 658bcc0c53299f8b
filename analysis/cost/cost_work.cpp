#include "analysis/cost/cost_work.hpp"

#include "analysis/base/calibration_notes.hpp"
#include "analysis/base/replay_pairs.hpp"
#include "analysis/runs/predicted_seconds.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"

namespace kvscope {

namespace {

Json work_json(LayerWork work) {
  Json list = Json::array();
  for (const double* number : numbers_of(work)) list.push_back(*number);
  list.push_back(work.is_dense);
  return list;
}

LayerWork work_from_json(const Json& list) {
  LayerWork work;
  const auto numbers = numbers_of(work);
  if (!list.is_array() || list.size() != numbers.size() + 1)
    throw ConfigError("the work of a call of another length");
  for (std::size_t i = 0; i < numbers.size(); ++i) *numbers[i] = list[i].get<double>();
  work.is_dense = list[numbers.size()].get<bool>();
  return work;
}

Json identity_of(const TraceSource* trace) {
  if (trace == nullptr) return nullptr;
  return {{"uuid", trace->info().uuid}, {"hash", trace->info().content_hash}};
}

Json config_of(const CostReplay& replay, const Json& settings) {
  const ReplayOptions& options = replay.options;
  Json config = {{"trace", identity_of(&replay.trace)},
                 {"draft", identity_of(replay.draft)},
                 {"calibration", identity_of(options.calibration)},
                 {"layers", replay.layers},
                 {"heads", options.q_heads},
                 {"phase", std::string(enum_name(options.calls.phase))},
                 {"chunk", options.calls.chunk},
                 {"steps", options.calls.steps},
                 {"drafts", options.calls.drafts},
                 {"dense_layers", or_null(options.dense_layers)},
                 {"n_sink", options.n_sink},
                 {"settings", settings}};
  if (options.calls.period > 1) config["period"] = options.calls.period;
  std::vector<MethodSpec> methods;
  for (const ReplayPair& pair : replay.pairs) {
    config["pairs"].push_back(pair_label(pair));
    methods.push_back(pair.selector);
  }
  add_artifacts(methods, config);
  return config;
}

}  // namespace

Work cost_work(const CostReplay& replay, const Json& settings, ThreadPool& pool) {
  const TraceInfo& info = replay.trace.info();
  Work work;
  work.command = "cost";
  work.config = config_of(replay, settings);
  work.config["shape"] = {info.n_q, info.n_kv, info.d_head};
  std::vector<std::string> questions;  // by pair, whichever pairs are asked beside it
  for (const ReplayPair& pair : replay.pairs) {
    Json own = {{"pair", pair_label(pair)}};
    add_artifacts({pair.selector}, own);
    if (pair.selector.caps().needs_draft) own["draft"] = work.config["draft"];
    questions.push_back(work.hash({"pairs", "artifacts", "layers", "draft", "settings"}, own));
  }
  const std::vector<ReplayItem> items = replay_items(replay.layers, replay.pairs);
  for (const ReplayItem& item : items) {
    work.groups.push_back(item.group);
    work.keys.push_back(config_checksum({questions[item.pair], item.layers}));
  }
  const std::vector<TokenRange> calls =
      plan_calls(info, replay.options.calls, replay.trace.where());
  work.seconds = [&replay, items, calls](std::size_t first) {
    ReplayOptions only = replay.options;
    only.rows_per_chunk = 1;  // no exact row is made
    return replay_seconds(replay.trace.info(), items[first].layers.size(), n_in_group(items, first),
                          calls, 1, only);
  };
  work.run = [&replay, &pool, items, keys = work.keys](std::span<const std::size_t> which,
                                                       const Lease*, const ProgressFn& progress,
                                                       std::stop_token stop) {
    WorkCollector works(replay.trace.info());
    ReplayOptions options = replay.options;
    options.on_selection = [&works](const SelectedCall& selected) { works.add(selected); };
    const std::vector<Index>& layers = items[which.front()].layers;
    std::vector<ReplayPair> pairs;
    for (const std::size_t i : which) pairs.push_back(replay.pairs[items[i].pair]);
    replay_layers(replay.trace, replay.draft, layers, pairs, options, pool, progress, stop);
    std::vector<Json> lines;
    for (std::size_t p = 0; p < pairs.size(); ++p) {
      Json answer = Json::array();
      for (const Index layer : layers) {
        Json of_calls = Json::array();
        for (const LayerWork& one : works.calls(p, layer)) of_calls.push_back(work_json(one));
        answer.push_back({layer, std::move(of_calls)});
      }
      lines.push_back(answer_of(keys[which[p]], std::move(answer)).front());
    }
    return lines;
  };
  return work;
}

void read_works(const CostReplay& replay, const Work& work, const Store& store,
                WorkCollector& works) {
  const std::vector<ReplayItem> items = replay_items(replay.layers, replay.pairs);
  for (std::size_t i = 0; i < items.size(); ++i) {
    for (const Json& one : answer_in(store, work.keys[i])) {
      std::size_t call = 0;
      for (const Json& of_call : one.at(1))
        works.put(items[i].pair, one.at(0).get<Index>(), call++, work_from_json(of_call));
    }
  }
}

}  // namespace kvscope

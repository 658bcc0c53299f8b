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
  const std::vector<ReplayPart> units = replay_parts(replay.layers, replay.pairs);
  Work work;
  work.command = "cost";
  work.config = config_of(replay, settings);
  work.config["shape"] = {info.n_q, info.n_kv, info.d_head};
  name_items(work, units.size());
  const std::vector<TokenRange> calls =
      plan_calls(info, replay.options.calls, replay.trace.where());
  work.seconds = [&replay, units, calls](std::size_t unit) {
    ReplayOptions only = replay.options;
    only.rows_per_chunk = 1;  // no exact row is made
    return replay_seconds(replay.trace.info(), units[unit].layers.size(), units[unit].pairs.size(),
                          calls, 1, only);
  };
  work.run = [&replay, &pool, units, keys = work.keys](
                 std::size_t unit, const Lease*, const ProgressFn& progress, std::stop_token stop) {
    WorkCollector works(replay.trace.info());
    ReplayOptions options = replay.options;
    options.on_selection = [&works](const SelectedCall& selected) { works.add(selected); };
    std::vector<ReplayPair> pairs;
    for (const std::size_t p : units[unit].pairs) pairs.push_back(replay.pairs[p]);
    replay_layers(replay.trace, replay.draft, units[unit].layers, pairs, options, pool, progress,
                  stop);
    Json answer = Json::array();
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      for (const Index layer : units[unit].layers) {
        Json of_calls = Json::array();
        for (const LayerWork& one : works.calls(i, layer)) of_calls.push_back(work_json(one));
        answer.push_back({units[unit].pairs[i], layer, std::move(of_calls)});
      }
    }
    return answer_of(keys[unit], std::move(answer));
  };
  return work;
}

void read_works(const Work& work, const Store& store, WorkCollector& works) {
  for (const std::string& key : work.keys) {
    for (const Json& one : answer_in(store, key)) {
      std::size_t call = 0;
      for (const Json& of_call : one.at(2))
        works.put(one.at(0).get<std::size_t>(), one.at(1).get<Index>(), call++,
                  work_from_json(of_call));
    }
  }
}

}  // namespace kvscope

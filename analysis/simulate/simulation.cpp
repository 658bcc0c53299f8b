#include "analysis/simulate/simulation.hpp"

#include <map>
#include <mutex>
#include <numeric>

#include "analysis/base/analysis.hpp"
#include "analysis/base/calibration_notes.hpp"
#include "analysis/base/checked_lines.hpp"
#include "analysis/base/mapped.hpp"
#include "analysis/base/number_formats.hpp"
#include "analysis/base/statistics.hpp"
#include "analysis/simulate/measured_cost.hpp"
#include "analysis/simulate/side_by_side.hpp"
#include "core/base/error.hpp"
#include "core/base/escape.hpp"
#include "core/base/json.hpp"
#include "core/base/nan.hpp"
#include "core/base/version.hpp"
#include "core/trace/result.hpp"

namespace kvscope {

namespace {

Json config_of(const SimulationTask& task, const SimulationSetup& setup) {
  const SimulationOptions& options = setup.options;
  std::vector<std::string> pairs;
  for (const LivePair& pair : setup.pairs) pairs.push_back(pair.label());
  Json config = {
      {"task", task.name()},
      // Names of files may be no UTF-8, and what JSON replaces must be the same when it
      // is read back.
      {"model", clean_text(setup.models.verifier_name)},
      {"model_hash", setup.models.verifier_hash},
      {"draft",
       setup.models.draft == nullptr ? Json(nullptr) : Json(clean_text(setup.models.draft_name))},
      {"text", clean_text(setup.models.text_name)},
      {"text_tokens", setup.models.text.size()},
      {"text_checksum", text_checksum({reinterpret_cast<const char*>(setup.models.text.data()),
                                       setup.models.text.size_bytes()})},
      {"pairs", pairs},
      {"dense_layers", or_null(options.dense_layers)},
      {"chunk", options.chunk},
      {"gamma", options.gamma},
      {"calibration_tokens", options.n_calibration},
      {"layer_map", setup.layer_map},
      {"seed", options.seed}};
  if (setup.models.draft != nullptr) config["draft_hash"] = setup.models.draft_hash;
  for (const MatchTarget& target : options.match) config["match"].push_back(target.to_string());
  if (setup.is_matched()) {
    for (const LivePair& pair : setup.pairs) config["knobs"].push_back(pair.labels.setting);
  }
  add_artifacts(options.selectors, config);
  for (const FurtherText& text : setup.models.more_texts) {
    config["more_texts"].push_back(
        {{"text", clean_text(text.name)},
         {"tokens", text.tokens.size()},
         {"checksum", text_checksum({reinterpret_cast<const char*>(text.tokens.data()),
                                     text.tokens.size_bytes()})}});
  }
  if (!setup.models.leading.empty()) config["leading_tokens"] = setup.models.leading;
  if (options.matmul != "f32") config["matmul"] = options.matmul;
  if (options.kv_dtype != "f32") config["kv_dtype"] = options.kv_dtype;
  const Json own = task.config();
  for (const auto& [key, value] : own.items()) config[key] = value;
  return config;
}

/// What keys of a pair's units begin with: of everything that decides them, whichever pairs are
/// asked beside it (whose draft, layer map and calibration text count all the same).
std::string question_of_pair(const Work& work, const LivePair& pair) {
  Json own = {{"pair", pair.label()}, {"setting", pair.labels.setting}};
  add_artifacts({pair.asked.selector}, own);
  return work.hash({"pairs", "knobs", "match", "artifacts"}, own);
}

Json answer_of_unit(const UnitResult& result) {
  return {{"values", json_numbers(result.values)}, {"series", json_numbers(result.series)}};
}

/// Multiplications and additions a second of one core with the weights: assumed, not measured.
constexpr double kModelRate = 20e9;

double case_seconds(const SimulationTask& task, const SimulationModels& models, std::size_t c) {
  const ModelConfig& config = models.verifier->config();
  const auto n = static_cast<double>(task.case_tokens(c));
  const auto width = static_cast<double>(config.n_layers * config.n_q * config.d_head);
  return (2.0 * static_cast<double>(config.n_parameters()) * n + 2.0 * width * n * n) / kModelRate;
}

UnitResult unit_in(const Store& store, const std::string& key, const UnitShape& shape) {
  const Json answer = answer_in(store, key);
  try {
    return {numbers_from_json(answer.at("values"), shape.n_values),
            numbers_from_json(answer.at("series"), shape.n_series)};
  } catch (const nlohmann::json::exception& error) {
    throw FormatError("{}: not what a simulation keeps: {}", store.folder().string(), error.what());
  } catch (const ConfigError& error) {
    throw FormatError("{}: found {}", store.folder().string(), error.what());
  }
}

SimulationResult empty_result(const SimulationTask& task, const SimulationSetup& setup) {
  SimulationResult result;
  result.task = task.name();
  result.config = config_of(task, setup);
  result.config_hash = config_checksum(result.config);
  result.skipped = setup.skipped;
  result.units.assign(task.n_cases(), std::vector<UnitResult>(setup.pairs.size()));
  return result;
}

/// What follows from the units.
void conclude(const SimulationTask& task, const SimulationSetup& setup, SimulationResult& result) {
  Json rows = task.rows(result.units);
  add_refused_rows(rows, setup, task.name());
  const NumberFormats formats = NumberFormats::of(result.config);
  for (Json& row : rows) formats.add_to(row);
  result.table = table_of_rows(rows, "simulation");
  result.doubts = task.doubts(result.units);
}

bool has_known_cases(const SimulationTask& task, std::size_t n_pairs) {
  const SimulationUnits none(task.n_cases(), std::vector<UnitResult>(n_pairs));
  return task.cases_of_round(0, none).size() == task.n_cases();
}

}  // namespace

std::vector<std::size_t> SimulationTask::cases_of_round(int round, const SimulationUnits&) const {
  std::vector<std::size_t> cases(round == 0 ? n_cases() : 0);
  std::iota(cases.begin(), cases.end(), std::size_t{0});
  return cases;
}

std::string simulation_hash(const SimulationTask& task, const SimulationSetup& setup) {
  return config_checksum(config_of(task, setup));
}

void require_known_items(const SimulationTask& task, const SimulationSetup& setup) {
  if (has_known_cases(task, setup.pairs.size())) return;
  throw ConfigError(
      "{}: its results decide how many prompts are asked, so its items are not known beforehand: "
      "expected --trials, not --until-interval",
      task.name());
}

Work simulation_work(SimulationTask& task, const SimulationSetup& setup, ThreadPool& pool) {
  const std::size_t n_pairs = setup.pairs.size();
  Work work;
  work.command = "simulate " + task.name();
  work.config = config_of(task, setup);
  work.may_lack = true;
  const auto questions = mapped<std::string>(
      setup.pairs, [&](const LivePair& pair) { return question_of_pair(work, pair); });
  std::vector<std::size_t> units;  // case * n_pairs + pair
  for (std::size_t u = 0; u < task.n_cases() * n_pairs; ++u) {
    if (!task.takes(u / n_pairs, u % n_pairs)) continue;
    units.push_back(u);
    work.keys.push_back(fmt::format("{}-{:06}", questions[u % n_pairs], u / n_pairs));
  }
  const std::vector<std::string> keys = work.keys;
  work.seconds = [&task, &setup, units, n_pairs](std::size_t item) {
    return case_seconds(task, setup.models, units[item] / n_pairs);
  };
  work.run = [&task, &pool, units, keys, n_pairs](std::span<const std::size_t> items, const Lease*,
                                                  const ProgressFn&, std::stop_token stop) {
    check_stop(stop, "simulate");
    const std::size_t item = items.front();
    const std::size_t unit = units[item];
    const UnitResult result = task.open_case(unit / n_pairs, pool, stop)(unit % n_pairs, pool);
    return answer_of(keys[item], answer_of_unit(result));
  };
  work.step_name = "runs";
  return work;
}

SimulationResult run_simulation(SimulationTask& task, const SimulationSetup& setup, Store& store,
                                ThreadPool& pool, const ProgressFn& progress,
                                const std::stop_token& stop) {
  SimulationResult result = empty_result(task, setup);
  const std::size_t n_pairs = setup.pairs.size();
  const Work work = simulation_work(task, setup, pool);
  std::map<std::size_t, std::string> keys;  // by case * n_pairs + pair
  for (std::size_t u = 0, item = 0; u < task.n_cases() * n_pairs; ++u) {
    if (!task.takes(u / n_pairs, u % n_pairs)) continue;
    keys[u] = work.keys[item++];
  }

  std::mutex mutex;  // units finish in several threads
  std::int64_t n_planned = 0;
  std::int64_t n_done = 0;
  const auto report = [&] {
    if (progress) progress({result.task, n_done, std::max(n_planned, n_done), "runs"});
  };
  std::vector<std::size_t> cases = task.cases_of_round(0, result.units);
  for (int round = 0; !cases.empty(); cases = task.cases_of_round(++round, result.units)) {
    std::vector<CaseWork> todo;
    Index longest = 0;
    for (const std::size_t c : cases) {
      CaseWork of_case{c, {}};
      for (std::size_t p = 0; p < n_pairs; ++p) {
        if (task.takes(c, p) && !store.knows(keys.at(c * n_pairs + p))) of_case.pairs.push_back(p);
      }
      longest = std::max(longest, task.case_tokens(c));
      n_planned += static_cast<std::int64_t>(of_case.pairs.size());
      if (!of_case.pairs.empty()) todo.push_back(std::move(of_case));
    }
    report();
    const auto open = [&](std::size_t c, ThreadPool& own) {
      check_stop(stop, "simulate");
      return task.open_case(c, own, stop);
    };
    const auto done = [&](std::size_t c, std::size_t pair, const UnitResult& unit) {
      const std::lock_guard lock(mutex);
      store.add(answer_of(keys.at(c * n_pairs + pair), answer_of_unit(unit)));
      ++n_done;
      report();
    };
    const std::size_t n_sequences =
        task.measures_seconds() ? 1 : sequences_at_once(setup.models, setup.options, longest);
    run_cases(todo, n_sequences, pool, {open, done});
    for (const std::size_t c : cases) {
      for (std::size_t p = 0; p < n_pairs; ++p) {
        const auto key = keys.find(c * n_pairs + p);
        if (key != keys.end() && store.knows(key->second))
          result.units[c][p] = unit_in(store, key->second, task.unit_shape());
      }
    }
  }
  store.sync();
  conclude(task, setup, result);
  return result;
}

SimulationResult simulation_result(const SimulationTask& task, const SimulationSetup& setup,
                                   const Work& work, const Store& store) {
  SimulationResult result = empty_result(task, setup);
  const std::size_t n_pairs = setup.pairs.size();
  const UnitShape shape = task.unit_shape();
  for (std::size_t u = 0, item = 0; u < task.n_cases() * n_pairs; ++u) {
    if (!task.takes(u / n_pairs, u % n_pairs)) continue;
    const std::string& key = work.keys.at(item++);
    const StoredAnswer* const answer = store.find(key);
    result.units[u / n_pairs][u % n_pairs] =
        answer != nullptr && !answer->failure.empty()
            ? UnitResult{std::vector<double>(shape.n_values, kNan),
                         std::vector<double>(shape.n_series, kNan)}
            : unit_in(store, key, shape);
  }
  conclude(task, setup, result);
  const std::vector<std::string> lacking = lacking_sentences(work, store);
  result.skipped.insert(result.skipped.end(), lacking.begin(), lacking.end());
  return result;
}

Json simulation_json(const SimulationTask& task, const SimulationResult& result) {
  Json json = {
      {"kind", "simulate-" + result.task},   {"version", writer_name()},
      {"config_hash", result.config_hash},   {"config", result.config},
      {"command_line", result.command_line}, {"inputs", inputs_of({.config = result.config})},
      {"skipped", result.skipped},           {"rows", table_json(result.table, result.config_hash)},
      {"doubts", doubts_json(result.doubts)}};
  task.extras(result.units, nullptr, json);
  return json;
}

void write_simulation(const SimulationTask& task, const SimulationResult& result,
                      ResultWriter& output, const std::string& writer) {
  ResultInfo info;
  info.kind = "simulate-" + result.task;
  info.config = result.config;
  info.command_line = result.command_line;
  info.writer = writer;
  output.begin(info);
  const Json categories = write_table(result.table, output);
  Json extras = Json::object();
  task.extras(result.units, &output, extras);
  output.finish({{"simulation_hash", result.config_hash},
                 {"skipped", result.skipped},
                 {"doubts", doubts_json(result.doubts)},
                 {"categories", categories}});
}

}  // namespace kvscope

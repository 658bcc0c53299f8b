#include "analysis/simulate/simulation.hpp"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <numeric>

#include "analysis/base/analysis.hpp"
#include "analysis/base/calibration_notes.hpp"
#include "analysis/base/checked_lines.hpp"
#include "analysis/base/number_formats.hpp"
#include "analysis/base/same_weights.hpp"
#include "analysis/base/statistics.hpp"
#include "analysis/simulate/measured_cost.hpp"
#include "analysis/simulate/side_by_side.hpp"
#include "analysis/simulate/simulation_units.hpp"
#include "core/base/error.hpp"
#include "core/base/escape.hpp"
#include "core/base/json.hpp"
#include "core/base/nan.hpp"
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
      {"dense_layers", options.dense_layers ? Json(*options.dense_layers) : Json(nullptr)},
      {"chunk", options.chunk},
      {"gamma", options.gamma},
      {"calibration_tokens", options.n_calibration},
      {"layer_map", setup.layer_map},
      {"seed", options.seed}};
  if (setup.models.draft != nullptr) config["draft_hash"] = setup.models.draft_hash;
  for (const MatchTarget& target : options.match) config["match"].push_back(target.to_string());
  if (setup.is_matched()) {
    for (const LivePair& pair : setup.pairs) config["knobs"].push_back(pair.labels.knob);
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

Json header_line(const Json& config) {
  return {{"kvscope_simulation", 1}, {"config", config}};
}

Json unit_line(std::size_t unit, const UnitResult& result) {
  return {{"unit", unit},
          {"values", json_numbers(result.values)},
          {"series", json_numbers(result.series)}};
}

/// Multiplications and additions a second of one core with the weights: assumed, not measured.
constexpr double kModelRate = 20e9;

UnitCost case_cost(const SimulationTask& task, const SimulationModels& models, std::size_t c,
                   const std::string& label) {
  const ModelConfig& config = models.verifier->config();
  const auto n = static_cast<double>(task.case_tokens(c));
  const auto parameters = static_cast<double>(config.n_parameters());
  const double cache = static_cast<double>(config.n_layers * config.n_kv * config.d_head);
  const double width = static_cast<double>(config.n_layers * config.n_q * config.d_head);
  UnitCost cost;
  cost.inputs.push_back(fmt::format("{}, {} tokens, {}", clean_text(models.verifier_name),
                                    task.case_tokens(c), label));
  cost.bytes_to_read = 4.0 * parameters;
  cost.predicted_memory = 2.0 * 4.0 * cache * n;
  cost.predicted_seconds = (2.0 * parameters * n + 2.0 * width * n * n) / kModelRate;
  return cost;
}

UnitResult result_from_line(const Json& line, const UnitShape& shape) {
  return {numbers_from_json(line.at("values"), shape.n_values),
          numbers_from_json(line.at("series"), shape.n_series)};
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
  result.table = task.table(result.units);
  add_refused_rows(result.table, setup, task.name());
  const std::vector<NumberFormats> formats(result.table.rows.size(),
                                           NumberFormats::of(result.config));
  add_formats(formats, result.table);
  result.doubts = task.doubts(result.units);
}

/// A case and one of its pairs.
using CasePair = std::pair<std::size_t, std::size_t>;

/// Of a task that has all its cases in the first round.
std::vector<CasePair> units_of(const SimulationTask& task, std::size_t n_pairs) {
  const std::vector<std::size_t> cases =
      task.cases_of_round(0, SimulationUnits(task.n_cases(), std::vector<UnitResult>(n_pairs)));
  if (cases.size() != task.n_cases()) {
    throw ConfigError(
        "{}: its results decide how many prompts are asked, so its units are not known beforehand: "
        "expected --trials, not --until-interval",
        task.name());
  }
  std::vector<CasePair> units;
  for (const std::size_t c : cases) {
    for (std::size_t p = 0; p < n_pairs; ++p) {
      if (task.takes(c, p)) units.emplace_back(c, p);
    }
  }
  return units;
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

SimulationResult run_simulation(SimulationTask& task, const SimulationSetup& setup,
                                const std::optional<std::filesystem::path>& journal,
                                JournalMode mode, ThreadPool& pool, const ProgressFn& progress,
                                std::stop_token stop) {
  SimulationResult result = empty_result(task, setup);
  const std::size_t n_pairs = setup.pairs.size();
  std::map<std::size_t, UnitResult> units;
  Journal lines(journal, mode, "simulation", header_line(result.config),
                [&](std::size_t unit, const Json& line) {
                  if (unit >= task.n_cases() * n_pairs)
                    throw ConfigError("a unit outside the simulation");
                  units[unit] = result_from_line(line, task.unit_shape());
                });

  std::mutex mutex;  // units finish in several threads
  const auto n_known = static_cast<std::int64_t>(units.size());
  std::int64_t n_planned = 0;
  const auto report = [&] {
    if (!progress) return;
    progress({result.task, static_cast<std::int64_t>(units.size()) - n_known,
              std::max(n_planned, static_cast<std::int64_t>(units.size())) - n_known, "runs"});
  };
  std::vector<std::size_t> cases = task.cases_of_round(0, result.units);
  for (int round = 0; !cases.empty(); cases = task.cases_of_round(++round, result.units)) {
    for (const std::size_t c : cases) {
      for (std::size_t p = 0; p < n_pairs; ++p) n_planned += task.takes(c, p) ? 1 : 0;
    }
    report();
    std::vector<CaseWork> todo;
    Index longest = 0;
    for (const std::size_t c : cases) {
      CaseWork work{c, {}};
      for (std::size_t p = 0; p < n_pairs; ++p) {
        if (task.takes(c, p) && !units.contains(c * n_pairs + p)) work.pairs.push_back(p);
      }
      longest = std::max(longest, task.case_tokens(c));
      if (!work.pairs.empty()) todo.push_back(std::move(work));
    }
    const auto open = [&](std::size_t c, ThreadPool& own) {
      check_stop(stop, "simulate");
      return task.open_case(c, own, stop);
    };
    const auto done = [&](std::size_t c, std::size_t pair, UnitResult unit) {
      const std::lock_guard lock(mutex);
      lines.add(unit_line(c * n_pairs + pair, unit));
      units.emplace(c * n_pairs + pair, std::move(unit));
      report();
    };
    const std::size_t n_sequences =
        task.measures_seconds() ? 1 : sequences_at_once(setup.models, setup.options, longest);
    run_cases(todo, n_sequences, pool, {open, done});
    for (const std::size_t c : cases) {
      for (std::size_t p = 0; p < n_pairs; ++p) {
        if (const auto found = units.find(c * n_pairs + p); found != units.end())
          result.units[c][p] = found->second;
      }
    }
  }
  conclude(task, setup, result);
  return result;
}

SimulationResult simulation_of_units(const SimulationTask& task, const SimulationSetup& setup,
                                     const UnitFolder& units) {
  SimulationResult result = empty_result(task, setup);
  const std::size_t n_pairs = setup.pairs.size();
  const UnitShape shape = task.unit_shape();
  const std::vector<CasePair> all = units_of(task, n_pairs);
  for (const FailedUnit& failed : units.failed) {
    const auto [c, p] = all.at(failed.unit);
    result.units[c][p] = {std::vector<double>(shape.n_values, kNan),
                          std::vector<double>(shape.n_series, kNan)};
  }
  read_units(units, [&](std::size_t unit, const Json& line) {
    if (unit >= task.n_cases() * n_pairs) throw ConfigError("a unit outside the simulation");
    result.units[unit / n_pairs][unit % n_pairs] = result_from_line(line, shape);
  });
  conclude(task, setup, result);
  const std::vector<std::string> lacking = lacking_sentences(units);
  result.skipped.insert(result.skipped.end(), lacking.begin(), lacking.end());
  return result;
}

UnitWork simulation_work(SimulationTask& task, const SimulationSetup& setup, ThreadPool& pool) {
  const std::size_t n_pairs = setup.pairs.size();
  const std::vector<CasePair> units = units_of(task, n_pairs);
  UnitWork work;
  const Json config = config_of(task, setup);
  work.header = header_line(config);
  work.weights = weights_of(config);
  work.n_units = units.size();
  work.may_lack = true;
  work.cost = [&task, &setup, units](std::size_t unit) {
    const auto [c, p] = units[unit];
    return case_cost(task, setup.models, c, setup.pairs[p].label());
  };
  work.run = [&task, &pool, units, n_pairs](std::size_t unit, const ProgressFn& progress,
                                            std::stop_token stop) {
    const auto [c, p] = units[unit];
    check_stop(stop, "simulate");
    const UnitResult result = task.open_case(c, pool, stop)(p, pool);
    if (progress) progress({task.name(), 1, 1, "runs"});
    return unit_line(c * n_pairs + p, result);
  };
  return work;
}

Json simulation_json(const SimulationTask& task, const SimulationResult& result) {
  Json json = {{"kind", "simulate-" + result.task},
               {"config_hash", result.config_hash},
               {"config", result.config},
               {"command_line", result.command_line},
               {"inputs", inputs_of({.config = result.config})},
               {"skipped", result.skipped},
               {"rows", table_json(result.table, result.config_hash)},
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

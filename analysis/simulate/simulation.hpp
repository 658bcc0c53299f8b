// The frame of all closed-loop simulations: cases x (selector, budget) pairs, a store of finished
// units, and results in one order whatever the threads and interruptions were.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "analysis/base/replay_pairs.hpp"
#include "analysis/base/table.hpp"
#include "analysis/runs/work.hpp"
#include "analysis/simulate/gates.hpp"
#include "analysis/sweep/match.hpp"
#include "analysis/sweep/sweep.hpp"
#include "core/base/progress.hpp"
#include "core/model/tokenizer.hpp"
#include "core/sim/live.hpp"
#include "core/trace/source.hpp"

namespace kvscope {

/// A text and its name.
struct FurtherText {
  std::span<const TokenId> tokens;
  std::string name;
};

/// What every simulation runs on. Views must outlive it.
struct SimulationModels {
  const Transformer* verifier = nullptr;
  const Transformer* draft = nullptr;    // may be null
  const Tokenizer* tokenizer = nullptr;  // of both
  std::string verifier_name;
  std::string draft_name;
  std::span<const TokenId> text;  // what is read, and the filler of prompts
  std::string text_name;
  std::vector<TokenId> leading;  // special tokens (BOS) in front of every prompt and window
  std::vector<FurtherText> more_texts = {};  // tasks measure over all; not chains, which read none
  std::string verifier_hash = {};            // core/model/model_hash.hpp
  std::string draft_hash = {};
  /// The first with the others.
  std::vector<FurtherText> texts() const;
};

/// Options that all tasks share.
struct SimulationOptions {
  std::vector<MethodSpec> selectors;
  std::vector<Budget> budgets;
  /// Instead of budgets: the measured costs that every method is to meet.
  std::vector<MatchTarget> match;
  std::optional<Index> dense_layers;  // empty = each method's own default
  Index chunk = 128;                  // B_CP: tokens per prefill call
  Index gamma = 4;                    // tokens per verification for methods that need a draft
  Index n_calibration = 1024;  // tokens at the text's end that methods and layer maps learn from
  Index seed = 0;
  std::string matmul =
      "f32";  // how the models compute: named in results where it is not the default
  std::string kv_dtype = "f32";  // and how they store keys and values
};

/// Measured numbers of one (case, pair), and a series (losses by position); what they mean is the
/// task's.
struct UnitResult {
  std::vector<double> values;
  std::vector<double> series;
};

/// How many numbers a unit of a task holds.
struct UnitShape {
  std::size_t n_values = 0;
  std::size_t n_series = 0;
  /// Where kept_values (measured_cost.hpp) begin among the values.
  std::vector<std::size_t> kept_at = {};
};

/// A (selector, budget) pair as it runs: the layer map that was measured is part of the spec.
struct LivePair {
  ReplayPair asked;
  LiveOptions options;
  bool needs_draft = false;
  std::optional<MatchTarget>
      match;           // what it is to cost; the setting is in `options` (match_live.hpp)
  MatchLabels labels;  // of the match
  /// "quest tokens=256", "quest density=0.05".
  std::string label() const;
  /// True if the method is defined for the phase.
  bool is_defined(Phase phase) const { return options.selector.caps().is_defined(phase); }
};

/// What tasks get to work with.
struct SimulationSetup {
  SimulationModels models;
  SimulationOptions options;
  std::vector<LivePair> pairs;
  std::vector<LivePair> refused;  // of a match: no value of the setting can be run; a row says so
  std::vector<std::string> skipped;  // sentences: combinations that were left out
  std::string layer_map;             // as measured for specattn; empty if nobody needed it
  /// A dense pass over the calibration text, if a method learns.
  std::shared_ptr<const TraceSource> calibration;
  bool is_matched() const { return !options.match.empty(); }
};

/// SpecAttn's layer map: the non-decreasing one from verifier layers to draft layers of least total
/// KL divergence (verifier || draft) between head-mean attention rows, over every `stride`-th
/// position of the text from 16 on, as `analyze layer-map` has it of recordings. Throws ConfigError
/// for texts of less than 32 tokens.
std::vector<Index> measure_layer_map(const Transformer& verifier, const Transformer& draft,
                                     std::span<const TokenId> text, Index stride, ThreadPool& pool);

/// Plans the pairs of methods that are defined for one of the phases at least, measures the layer
/// map and reads the calibration text where a method needs them. Throws ConfigError for budgets
/// that no method takes, a missing draft, a text shorter than the calibration needs.
SimulationSetup set_up_simulation(const SimulationModels& models, const SimulationOptions& options,
                                  const std::vector<Phase>& phases, ThreadPool& pool);

/// `n` tokens of a text from `begin` on, in which the special tokens in front take the place of as
/// many of its own.
std::vector<TokenId> text_window(const SimulationModels& models, std::span<const TokenId> text,
                                 Index begin, Index n);

/// A case that is being measured, with what its pairs share (a prompt, a dense model's store of
/// it): measures a pair; in several threads at once, for different pairs.
using OpenCase = std::function<UnitResult(std::size_t pair, ThreadPool& pool)>;

/// All units, [n_cases][n_pairs]; those that a task did not ask for are empty.
using SimulationUnits = std::vector<std::vector<UnitResult>>;

/// One kind of simulation.
class SimulationTask {
 public:
  virtual ~SimulationTask() = default;
  virtual std::string name() const = 0;
  /// Everything that decides the numbers, besides models and SimulationOptions.
  virtual nlohmann::ordered_json config() const = 0;
  virtual std::size_t n_cases() const = 0;
  /// Tokens that go through the model in a case, for predictions of time.
  virtual Index case_tokens(std::size_t index) const = 0;
  /// Cases of a round; `units` holds those of the rounds before it, and only they may decide. None
  /// ends the run. Most tasks run all cases in one round.
  virtual std::vector<std::size_t> cases_of_round(int round, const SimulationUnits& units) const;
  /// False for pairs that a case leaves out.
  virtual bool takes(std::size_t case_index, std::size_t pair) const {
    (void)case_index, (void)pair;
    return true;
  }
  /// True if a case measures seconds: nothing runs beside it then.
  virtual bool measures_seconds() const { return false; }
  /// Cases whose cost is what a match meets: few, and one of every length.
  virtual std::vector<std::size_t> match_cases() const { return {0}; }
  /// Of every unit; a store with other units is refused, since rows() believes them.
  virtual UnitShape unit_shape() const = 0;
  /// Prepares case `index`; from several threads at once, for different cases. Its runs (of pairs
  /// of setup.pairs) end with Interrupted on a stop. It keeps nothing of the pool.
  virtual OpenCase open_case(std::size_t index, ThreadPool& pool, std::stop_token stop) = 0;
  /// The rows of the table of all units, as table_of_rows() takes them.
  virtual nlohmann::ordered_json rows(const SimulationUnits& units) const = 0;
  /// Further arrays of the HDF5 result; may add to `json`, which goes beside the rows.
  virtual void extras(const std::vector<std::vector<UnitResult>>& units, ResultWriter* output,
                      nlohmann::ordered_json& json) const {
    (void)units, (void)output, (void)json;
  }
  /// Why not to believe what the table ranks (gates.hpp).
  virtual std::vector<Doubt> doubts(const SimulationUnits& units) const {
    (void)units;
    return {};
  }
  /// What the model saw and answered in the first n cases, for reading; may be empty.
  virtual std::string show(const SimulationUnits& units, std::size_t n) const {
    (void)units, (void)n;
    return "";
  }
};

struct SimulationResult {
  std::string task;
  nlohmann::ordered_json config;
  std::string config_hash;
  std::vector<std::string> skipped;
  Table table{"simulation"};
  std::vector<std::vector<UnitResult>> units;  // [n_cases][n_pairs]
  std::vector<Doubt> doubts;
  std::string command_line;  // the caller's, as far as it decides the numbers
};

/// SimulationResult::config_hash of what run_simulation would return.
std::string simulation_hash(const SimulationTask& task, const SimulationSetup& setup);

/// The units one by one, an item for each (case, pair). All three must outlive the work.
Work simulation_work(SimulationTask& task, const SimulationSetup& setup, ThreadPool& pool);
/// Throws ConfigError for a task whose results decide how many cases there are: its items are not
/// known beforehand, and only run_simulation() can do them.
void require_known_items(const SimulationTask& task, const SimulationSetup& setup);

/// Runs what the store does not know, several sequences side by side, and returns everything.
/// Throws what Store::add throws, and Interrupted on a stop (what is finished stays). The result
/// has the same numbers for any thread count and any interruption; measured seconds, where a task
/// has them, are those of the run that made the unit.
SimulationResult run_simulation(SimulationTask& task, const SimulationSetup& setup, Store& store,
                                ThreadPool& pool, const ProgressFn& progress = {},
                                const std::stop_token& stop = {});

/// The result from the answers of all items; numbers of those that failed are NaN.
SimulationResult simulation_result(const SimulationTask& task, const SimulationSetup& setup,
                                   const Work& work, const Store& store);

/// {"kind", "config_hash", "config", "command_line", "skipped", "rows", "doubts", ...extras}.
nlohmann::ordered_json simulation_json(const SimulationTask& task, const SimulationResult& result);

/// rows/COLUMN and the task's own arrays.
void write_simulation(const SimulationTask& task, const SimulationResult& result,
                      ResultWriter& output, const std::string& writer);

}  // namespace kvscope

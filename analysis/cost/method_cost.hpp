// From the work of a method in the layers of a model to times: of a call at its own or another
// context, of a whole prompt, and the memory that it takes. Lists may be measured on a recording
// (trace_cost.hpp) or follow from a shape (shape_lists.hpp); everything here is the same for both.
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "analysis/cost/predict.hpp"
#include "core/model/config.hpp"
#include "core/sim/replay.hpp"

namespace kvscope {

/// What a report knows of a model besides lists.
struct CostModel {
  std::string name;
  Index n_layers = 0, n_q = 0, n_kv = 0, d_head = 0;
  std::vector<std::optional<Index>> window;  // per layer that attends; empty: none has one
  /// Query heads, KV heads and channels of layers with a window, where they are others.
  std::optional<std::array<Index, 3>> window_shape;
  Index n_full_shared = 0, n_window_shared = 0;  // layers that read an earlier layer's keys
  std::vector<Index> places;        // of the layers that attend, in the model; empty: all do
  std::string layers;               // a sentence: which layers attend; empty: all, alike
  std::optional<RestOfModel> rest;  // nothing: its config.json is not known
  double weight_bytes = 0.0;        // that lie in memory, of all experts; 0: not known
  Index n_full() const;             // layers without a window that attend
};
CostModel cost_model(const ModelConfig& config, std::string name, double weight_bits);
CostModel cost_model(const TraceInfo& info, double weight_bits);

/// Bytes of weights and of the keys and values of a batch; a layer with a window holds its window.
double memory_bytes(const CostModel& model, double n_ctx, const CostSetting& setting);

/// Bytes of a stored key or value element on a card where nothing is said.
double usual_kv_bytes(const HardwareProfile& hardware);

/// Mean over calls of predicted and dense seconds of one layer.
struct LayerCost {
  StageTimes stages;
  double dense = 0.0;
};
LayerCost mean_cost(const std::vector<LayerWork>& calls, const HardwareProfile& hardware,
                    const CostSetting& setting);

/// The mean of several calls as one: their sums divided.
LayerWork mean_work(const std::vector<LayerWork>& calls);

/// The calls of `n` layers that are alike.
struct AlikeLayers {
  double n = 1.0;
  std::vector<LayerWork> calls;
};

/// A pair's work in the layers without a window: as it was found, and the calls from which other
/// contexts follow.
struct MethodWork {
  bool keeps_count = false;
  double count = 0.0;  // keys of a list by the budget
  std::vector<AlikeLayers> calls;
  std::vector<AlikeLayers> at_length;
  std::string too_short;  // what to record; empty if every layer has calls at length
};

/// `layers`: those that were asked, with the calls of each. Throws ConfigError if there is none.
MethodWork method_work(const ReplayPair& pair, const std::vector<Index>& layers,
                       std::vector<AlikeLayers> calls);

/// One call, as it was found or at a context.
struct CallCost {
  LayerCost layer;                      // mean over the layers without a window
  std::vector<AlikeLayers> works;       // a mean call of each
  std::optional<double> call, dense;    // seconds of the whole call; nothing without a `rest`
  double union_keys = 0.0, runs = 0.0;  // of a KV head, means over the layers
  const CallShape& shape() const { return works.front().calls.front().shape; }
};
CallCost call_cost(const CostModel& model, const MethodWork& work, std::optional<double> context,
                   const HardwareProfile& hardware, const CostSetting& setting);

/// Seconds of a prompt in calls of as many queries as the work's own; with the rest of the model,
/// if it is known.
struct PromptCost {
  double seconds = 0.0;
  double dense = 0.0;
};
PromptCost prompt_cost(const CostModel& model, const MethodWork& work, double n_ctx,
                       const HardwareProfile& hardware, const CostSetting& setting);

/// The least context from which on a method costs no more than dense attention, as far as 16M
/// tokens; nothing if it never does or its calls are too short. Of a count of keys (at_context) it
/// is never one in which a list holds all there is. gain: factor of dense attention's time (1: as
/// predicted).
std::optional<double> break_even_of(const MethodWork& work, const HardwareProfile& hardware,
                                    const CostSetting& setting, double gain = 1.0);

/// The columns of a report's row that every `kvscope cost` has.
nlohmann::ordered_json cost_row(const CostModel& model, const HardwareProfile& hardware,
                                const CostSetting& setting, const ReplayPair& pair, Phase phase,
                                const MethodWork& work, const CallCost& cost, bool is_scaled);

/// The sizes of a method's lists at length, mean over the layers that it does not leave dense and
/// over their calls of full length: what `--like` reads. Null if there are none.
nlohmann::ordered_json list_sizes(const ReplayPair& pair, Phase phase, const MethodWork& work);

}  // namespace kvscope

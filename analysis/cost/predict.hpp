// From work to time: the cost model. analysis/cost/README.md derives it and names the source of
// every constant.
//
//   t = sum over stages of
//       [ launch + max(FLOPs / (efficiency x peak), bytes / (efficiency x bandwidth)) ]
//
// Stages run one after another, as separate kernels do. A stage without work takes no time.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "analysis/cost/hardware.hpp"
#include "analysis/cost/work.hpp"
#include "core/model/config.hpp"

namespace kvscope {

/// append: writing what the method keeps about new keys. estimate: attending to pseudo-keys.
enum class CostStage : std::size_t { append, score, topk, attend, estimate };
inline constexpr std::array<std::string_view, 5> kCostStages = {"append", "score", "topk", "attend",
                                                                "estimate"};

/// Seconds.
struct StageTimes {
  std::array<double, kCostStages.size()> seconds{};
  double& of(CostStage stage) { return seconds[static_cast<std::size_t>(stage)]; }
  double of(CostStage stage) const { return seconds[static_cast<std::size_t>(stage)]; }
  double total() const;
  StageTimes& operator+=(const StageTimes& other);
  StageTimes scaled(double factor) const;
};

/// How the work is done, besides the card.
struct CostSetting {
  double batch = 1.0;            // sequences side by side: their caches are not shared
  double kv_bytes = 2.0;         // of a stored element of K or V
  std::optional<double> attend;  // share of peak of dense attention, in place of the profile's
};

/// One layer of one call.
StageTimes predict_layer(const LayerWork& work, const HardwareProfile& hardware,
                         const CostSetting& setting);

/// What a model does besides attention, of one forward call.
struct RestOfModel {
  double weight_bytes = 0.0;  // read once per call, whatever the batch; experts of one token
  double flops_per_token = 0.0;
  double n_launches = 0.0;
  double expert_bytes = 0.0;  // of all experts
  double expert_share = 0.0;  // of them that one token picks
};

/// weight_bits: of a stored weight. Embeddings are not read as a matrix, logits are.
RestOfModel rest_of_model(const ModelConfig& config, double weight_bits);
RestOfModel rest_of_model(double n_parameters, double n_layers, double weight_bits);

/// Seconds of that for n_tok tokens of each sequence. Experts that some token picks are read, as if
/// every token picked at random.
double predict_rest(const RestOfModel& rest, double n_tok, const HardwareProfile& hardware,
                    const CostSetting& setting);

/// The same call at another context: keys and runs stay as they are where the budget is a count and
/// grow with the context otherwise; scoring grows with the keys before the call, ranking and
/// pseudo-keys with the context. A count stays
/// only where the measured call had it: calls_at_length (method_cost.hpp).
LayerWork at_context(const LayerWork& work, double n_ctx, bool keeps_count);

}  // namespace kvscope

// The answer to a question of cost as one sentence.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "analysis/cost/shape_cost.hpp"

namespace kvscope {

/// rows: of one card, method and batch, by context (shape_cost_report). Numbers are of the longest
/// context that the card and the model's config.json have room for.
std::string answer_sentence(const CostModel& model, const HardwareProfile& hardware,
                            const ReplayPair& pair, const ShapeOptions& options,
                            const std::vector<nlohmann::ordered_json>& rows);

/// "quest with 1024 keys".
std::string pair_words(const ReplayPair& pair);

}  // namespace kvscope

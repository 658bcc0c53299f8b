// What a report will ask, before anything runs: every check with what it compares, of how many
// prompts or tokens, and how small a difference these can show.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "analysis/papers/paired.hpp"

namespace kvscope::papers {

struct PlannedCheck {
  const Item* item = nullptr;
  const Check* check = nullptr;
  std::string hypothesis;
  Pairing pairing = Pairing::none;
  double threshold = 0.0;  // of left - right
  double counts = 0.0;     // the smallest difference that counts
  double spread = 0.0;     // of one unit's difference, as assumed; NaN: unpaired
  double units = 0.0;      // that the runs have; NaN: not known before the model is
  double power = 0.0;      // to show a difference that counts
  double needed = 0.0;     // units that show it four times of five
};

/// Units that a command has: prompts of simulate retrieval, blocks of 64 tokens of simulate
/// perplexity;
/// NaN for other commands.
double units_of_command(const std::string& command);

/// Of the items that can be tested, in their order.
std::vector<PlannedCheck> plan_of(const std::vector<const Item*>& items, bool quick);
nlohmann::ordered_json plan_json(const std::vector<PlannedCheck>& plan);
std::string plan_text(const std::vector<PlannedCheck>& plan);

}  // namespace kvscope::papers

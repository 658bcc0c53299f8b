#include "analysis/papers/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "analysis/base/statistics.hpp"
#include "analysis/papers/verdict.hpp"
#include "core/base/json.hpp"
#include "core/base/nan.hpp"
#include "core/base/number_text.hpp"

namespace kvscope::papers {

namespace {

/// The word behind an option of a command; `preset` without it.
std::string word_behind(const std::string& command, const std::string& option,
                        const std::string& preset) {
  std::istringstream words(command);
  for (std::string word; words >> word;) {
    if (word == option && words >> word) return word;
  }
  return preset;
}

double number_behind(const std::string& command, const std::string& option, double preset) {
  return number_from<double>(word_behind(command, option, "")).value_or(preset);
}

double listed(const std::string& words) {
  return 1.0 + static_cast<double>(std::ranges::count(words, ','));
}

/// How far units differ, before they are seen: half of the prompts go to one of the methods alone,
/// blocks of a text differ by a tenth of a nat, heads by a tenth of their attention. NaN of layers,
/// which are compared in many units.
double assumed_spread(Pairing pairing) {
  const bool is_known = pairing == Pairing::block || pairing == Pairing::head;
  return pairing == Pairing::prompt ? std::sqrt(0.5) : is_known ? 0.1 : kNan;
}

}  // namespace

double units_of_command(const std::string& command) {
  if (command.starts_with("simulate retrieval")) {
    const std::string kinds = word_behind(command, "--kinds", "passkey");
    return (kinds.starts_with("{") ? 1.0 : listed(kinds)) *
           listed(word_behind(command, "--lengths", "4096")) *
           number_behind(command, "--depths", 10.0) * number_behind(command, "--trials", 1.0);
  }
  if (command.starts_with("simulate perplexity")) {
    const double n_tokens = number_behind(command, "--max-tokens", 2048.0);
    const double prefill = std::floor(number_behind(command, "--prefill", 0.1) * n_tokens);
    return number_behind(command, "--windows", 1.0) * std::floor((n_tokens - 1.0 - prefill) / 64.0);
  }
  return kNan;
}

std::vector<PlannedCheck> plan_of(const std::vector<const Item*>& items, bool quick) {
  std::vector<PlannedCheck> plan;
  for (const Item* item : items) {
    if (!item->never.empty()) continue;
    for (const Check& check : item->checks) {
      PlannedCheck one{.item = item,
                       .check = &check,
                       .hypothesis = hypothesis_of(*item, check),
                       .pairing = pairing_of(*item, check),
                       .threshold = threshold_of(*item, check)};
      one.counts = check.counts > 0.0 ? check.counts : usual_size(one.pairing);
      one.spread = assumed_spread(one.pairing);
      one.units = one.power = one.needed = kNan;
      const Run* const run = run_named(item->find(check.left)->run);
      if (!std::isnan(one.spread) && run != nullptr) {
        one.units = units_of_command(quick && !run->quick.empty() ? run->quick : run->full);
        one.needed = units_needed(one.counts, one.spread);
        if (!std::isnan(one.units)) one.power = power(one.counts, one.spread, one.units);
      }
      plan.push_back(std::move(one));
    }
  }
  return plan;
}

Json plan_json(const std::vector<PlannedCheck>& plan) {
  Json list = Json::array();
  for (const PlannedCheck& one : plan) {
    const bool is_paired = one.pairing != Pairing::none;
    list.push_back({{"item", one.item->id},
                    {"paper", paper_name(one.item->paper)},
                    {"place", one.item->place},
                    {"claim", one.item->claim},
                    {"words", one.item->words},
                    {"hypothesis", one.hypothesis},
                    {"decides", one.check->role == Role::needs  ? "whether it can be tested"
                                : one.check->role == Role::form ? "form"
                                                                : "size"},
                    {"pairing", pairing_word(one.pairing)},
                    {"threshold", is_paired ? Json(one.threshold) : Json(nullptr)},
                    {"counts", is_paired ? Json(one.counts) : Json(nullptr)},
                    {"assumed_spread", json_number(one.spread)},
                    {"units", json_number(one.units)},
                    {"power", json_number(one.power)},
                    {"units_needed", json_number(one.needed)}});
  }
  return {{"format", "kvscope-papers-plan"}, {"version", 1}, {"checks", std::move(list)}};
}

std::string plan_text(const std::vector<PlannedCheck>& plan) {
  std::string text;
  const Item* item = nullptr;
  for (const PlannedCheck& one : plan) {
    if (one.item != item) {
      text += fmt::format("{}{}: {}\n", text.empty() ? "" : "\n", one.item->id, one.item->claim);
      text += one.item->words.empty()
                  ? fmt::format("  {}\n", one.item->place)
                  : fmt::format("  {}: \"{}\"\n", one.item->place, one.item->words);
    }
    item = one.item;
    text += fmt::format("  {} {}.\n",
                        one.check->role == Role::needs  ? "needs:"
                        : one.check->role == Role::form ? "form: "
                                                        : "size: ",
                        one.hypothesis);
    if (std::isnan(one.spread)) continue;
    const bool is_log = one.pairing == Pairing::block;
    const auto size = [&](double x) {
      return is_log ? fmt::format("{:.1f} % of perplexity", 100.0 * x)
                    : fmt::format("{:.1f} points", 100.0 * x);
    };
    text += fmt::format("         paired over {}{}; counts from {}; ",
                        std::isnan(one.units) ? "" : fmt::format("{:.0f} ", one.units),
                        pairing_word(one.pairing), size(one.counts));
    text +=
        std::isnan(one.power)
            ? fmt::format("{:.0f} of them would show that 4 times of 5\n", one.needed)
            : fmt::format("these show that with a chance of {:.0f} %, {:.0f} would 4 times of 5\n",
                          100.0 * one.power, one.needed);
  }
  return text +
         "\nAssumed of what is not measured yet: half of the prompts are answered by one method "
         "alone,\nblocks of a text differ by a tenth of a nat, heads by a tenth of their "
         "attention.\n";
}

}  // namespace kvscope::papers

#include "analysis/study/study_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analysis/study/study_forecast.hpp"
#include "analysis/study/study_state.hpp"

namespace kvscope {

namespace {

/// Jobs of one kind differ in method, budgets and text alone.
std::string label_of(const StudyItem& item) {
  std::string label = item.task;
  if (!item.model.empty()) label += ", " + item.model;
  if (!item.protocol.empty()) label += ", " + item.protocol;
  return label;
}

}  // namespace

std::vector<ForecastCheck> check_forecast(const StudyPlan& plan, const Store& store) {
  std::vector<bool> known(plan.items.size());
  for (std::size_t i = 0; i < known.size(); ++i) known[i] = store.knows(plan.items[i].key);
  const std::vector<bool> probes = probe_items(plan, StudyForecast(), known);
  std::vector<const StoredAnswer*> measured;
  for (std::size_t i = 0; i < known.size(); ++i) {
    if (probes[i]) measured.push_back(store.find(plan.items[i].key));
  }
  const StudyForecast forecast(measured);
  std::vector<ForecastCheck> checks;
  std::map<std::string, std::size_t> places;  // by kind
  for (const StudyJob& job : jobs_for(plan, known)) {
    const auto [place, is_new] = places.emplace(job.kind, checks.size());
    if (is_new) checks.push_back({label_of(plan.items[job.items[0]])});
    ForecastCheck& check = checks[place->second];
    if (probes[job.items[0]]) {
      ++check.probes;
      continue;
    }
    ++check.jobs;
    check.seconds_predicted += forecast.seconds(job);
    check.memory_predicted = std::max(check.memory_predicted, forecast.memory(job));
    for (const std::size_t i : job.items) {
      const StoredAnswer& item = *store.find(plan.items[i].key);
      check.seconds_measured += item.seconds;
      check.memory_measured = std::max(check.memory_measured, item.memory);
    }
  }
  std::erase_if(checks, [](const ForecastCheck& check) { return check.jobs == 0; });
  return checks;
}

}  // namespace kvscope

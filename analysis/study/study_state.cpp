#include "analysis/study/study_state.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "core/base/json.hpp"
#include "core/base/nan.hpp"

namespace kvscope {

namespace {

/// The items of the recordings that a job reads.
std::vector<std::size_t> needed_items(const StudyPlan& plan, const StudyJob& job) {
  std::vector<std::size_t> items;
  for (const std::size_t need : job.needs) items.push_back(plan.jobs[need].items[0]);
  return items;
}

/// True if an item failed and its sentence names this recording: it is damaged, say.
bool blames(const Store& store, const StudyItem& item, const StudyItem& recording) {
  const StoredAnswer* const known = store.find(item.key);
  return known != nullptr && known->failure.find(recording.key + ".h5") != std::string::npos;
}

/// True if a recording is known and its file is there, as long as it was.
bool has_recording(const Store& store, const StudyItem& item) {
  std::error_code error;
  if (!store.knows(item.key)) return false;
  const auto bytes = std::filesystem::file_size(study_recording(store.folder(), item.key), error);
  return !error && static_cast<double>(bytes) == store.find(item.key)->bytes;
}

/// Recordings that items to do need, and that are not there or were blamed.
void add_needs(const StudyPlan& plan, const Store& store, std::vector<bool>& to_do) {
  // Recordings stand before what reads them.
  for (std::size_t j = plan.jobs.size(); j-- > 0;) {
    for (const std::size_t item : plan.jobs[j].items) {
      if (!to_do[item]) continue;
      for (const std::size_t need : needed_items(plan, plan.jobs[j])) {
        if (!has_recording(store, plan.items[need]) ||
            blames(store, plan.items[item], plan.items[need]))
          to_do[need] = true;
      }
    }
  }
}

std::vector<const StoredAnswer*> known_items(const Store& store) {
  std::vector<const StoredAnswer*> known;
  for (const auto& [key, answer] : store.answers()) {
    if (answer.failure.empty() && !answer.kind.empty()) known.push_back(&answer);
  }
  return known;
}

}  // namespace

std::string failure_of(const StudyPlan& plan, const Store& store, const StudyItem& item) {
  if (store.knows(item.key)) return "";
  if (const StoredAnswer* known = store.find(item.key)) return known->failure;
  for (const std::size_t need : needed_items(plan, plan.jobs[item.job])) {
    const std::string sentence = failure_of(plan, store, plan.items[need]);
    if (!sentence.empty()) return "its recording failed: " + sentence;
  }
  return "";
}

std::vector<bool> study_to_do(const StudyPlan& plan, const Store& store, bool retry_failed) {
  std::vector<bool> to_do(plan.items.size());
  for (std::size_t i = 0; i < plan.items.size(); ++i) {
    const StudyItem& item = plan.items[i];
    if (plan.jobs[item.job].is_recording || store.knows(item.key)) continue;
    to_do[i] = retry_failed || failure_of(plan, store, item).empty();
  }
  add_needs(plan, store, to_do);
  for (std::size_t i = 0; i < plan.items.size(); ++i)
    to_do[i] = to_do[i] && (retry_failed || failure_of(plan, store, plan.items[i]).empty());
  return to_do;
}

std::vector<const StudyItem*> open_items(const StudyPlan& plan, const Store& store,
                                         const StudyJob& job) {
  std::vector<const StudyItem*> items;
  for (const std::size_t i : job.items) {
    const StudyItem& item = plan.items[i];
    const StoredAnswer* const answer = store.find(item.key);
    const bool is_lost = job.is_recording && answer != nullptr && answer->failure.empty() &&
                         !has_recording(store, item);
    if (answer == nullptr || is_lost) items.push_back(&item);
  }
  return items;
}

ItemState state_of_job(const StudyPlan& plan, const Store& store, const StudyJob& job) {
  if (open_items(plan, store, job).empty()) return ItemState::done;
  for (const std::size_t item : needed_items(plan, job)) {
    const StudyItem& need = plan.items[item];
    if (has_recording(store, need)) continue;
    return failure_of(plan, store, need).empty() ? ItemState::waits : ItemState::done;
  }
  return ItemState::to_do;
}

StudyForecast::StudyForecast(const Store& store, std::map<std::string, double> planned)
    : planned_(std::move(planned)) {
  constexpr double kLeast = 1e-4;  // seconds
  constexpr int kRounds = 30;
  std::map<std::pair<std::string, std::string>, std::size_t> counts;
  for (const StoredAnswer* one : known_items(store)) {
    const StoredAnswer& item = *one;
    Kind& kind = kinds_[item.kind];
    kind.memory = std::max(kind.memory, item.memory);
    kind.bytes = std::max(kind.bytes, item.bytes);
    ++kind.n_items;
    double& mean = kind.methods[item.method];
    const std::size_t n = ++counts[{item.kind, item.method}];
    mean += (std::max(kLeast, item.seconds) - mean) / static_cast<double>(n);
  }
  for (auto& [name, kind] : kinds_) {
    for (auto& [method, mean] : kind.methods) mean = std::log(mean);
  }
  // Levels of kinds and factors of methods in turn, each the mean of what the others leave.
  for (int round = 0; round < kRounds; ++round) {
    std::map<std::string, std::pair<double, double>, std::less<>> sums;
    for (auto& [name, kind] : kinds_) {
      double sum = 0.0;
      for (const auto& [method, mean] : kind.methods) sum += mean - factors_[method];
      kind.level = sum / static_cast<double>(kind.methods.size());
      for (const auto& [method, mean] : kind.methods) {
        sums[method].first += mean - kind.level;
        sums[method].second += 1.0;
      }
    }
    for (const auto& [method, sum] : sums) factors_[method] = sum.first / sum.second;
  }
}

double StudyForecast::seconds(const StudyJob& job) const {
  const auto kind = kinds_.find(job.kind);
  if (kind == kinds_.end()) return kNan;
  const auto n = static_cast<double>(job.items.size());
  const auto own = kind->second.methods.find(job.method);
  if (own != kind->second.methods.end()) return n * std::exp(own->second);
  const auto factor = factors_.find(job.method);
  return n * std::exp(kind->second.level + (factor == factors_.end() ? 0.0 : factor->second));
}

double StudyForecast::memory(const StudyJob& job) const {
  const auto kind = kinds_.find(job.kind);
  return kind == kinds_.end() ? kNan : kind->second.memory;
}

double StudyForecast::bytes(const StudyJob& job) const {
  if (!job.is_recording) return 0.0;
  const auto kind = kinds_.find(job.kind);
  if (kind != kinds_.end()) return kind->second.bytes;
  const auto planned = planned_.find(job.kind);
  return planned == planned_.end() ? kNan : planned->second;
}

std::size_t StudyForecast::n_measured(const StudyJob& job) const {
  const auto kind = kinds_.find(job.kind);
  if (kind == kinds_.end()) return 0;
  return job.is_recording ? kind->second.n_items : kind->second.methods.size();
}

double wall_seconds(std::span<const StudyJob> jobs, const StudyForecast& forecast,
                    std::size_t n_workers) {
  double wall = 0.0;
  // Recordings, drafts' recordings (which read others), and the rest: one after the other.
  for (const int stage : {0, 1, 2}) {
    double sum = 0.0;
    double longest = 0.0;
    for (const StudyJob& job : jobs) {
      const int own = !job.is_recording ? 2 : job.needs.empty() ? 0 : 1;
      if (own != stage) continue;
      const double seconds = forecast.seconds(job);
      if (std::isnan(seconds)) return kNan;
      sum += seconds;
      longest = std::max(longest, seconds);
    }
    wall += std::max(longest, sum / static_cast<double>(n_workers));
  }
  return wall;
}

std::vector<bool> study_probes(const StudyPlan& plan, const Store& store,
                               const std::vector<bool>& to_do) {
  constexpr std::size_t kProbes = 2;
  const StudyForecast forecast(store);
  std::map<std::string, std::vector<StudyJob>> kinds;
  for (StudyJob& job : jobs_for(plan, to_do)) kinds[job.kind].push_back(std::move(job));
  std::vector<bool> probes(plan.items.size());
  std::set<std::string> methods;  // of the probes
  std::size_t turn = 0;
  for (const auto& [kind, jobs] : kinds) {
    for (std::size_t n = forecast.n_measured(jobs[0]); n < std::min(kProbes, jobs.size()); ++n) {
      // The first method of all kinds, to which the factors of the others compare, then by turns.
      const StudyJob& job = n == 0 ? jobs[0] : jobs[1 + turn++ % (jobs.size() - 1)];
      for (const std::size_t item : job.items) probes[item] = true;
      methods.insert(job.method);
    }
  }
  // A method that nobody measured may take many times as long as another.
  for (const auto& [kind, jobs] : kinds) {
    for (const StudyJob& job : jobs) {
      if (job.is_recording || forecast.knows_method(job.method) ||
          !methods.insert(job.method).second)
        continue;
      for (const std::size_t item : job.items) probes[item] = true;
    }
  }
  add_needs(plan, store, probes);
  return probes;
}

Json count_study(const StudyPlan& plan, const Store& store, std::map<std::string, double> planned) {
  const Json none = {{"items", 0}, {"known", 0},     {"failed", 0},   {"to_do", 0},
                     {"jobs", 0},  {"seconds", 0.0}, {"memory", 0.0}, {"bytes", 0.0}};
  Json all = none;
  Json tasks = Json::array();
  const auto count = [&](const std::string& task, auto&& change) {
    auto own = std::find_if(tasks.begin(), tasks.end(),
                            [&](const Json& one) { return one.at("task") == task; });
    if (own == tasks.end()) {
      tasks.push_back({{"task", task}});
      tasks.back().update(none);
      own = tasks.end() - 1;
    }
    change(*own);
    change(all);
  };
  const auto add = [](Json& own, const char* key, auto more) {
    own[key] = own.at(key).template get<decltype(more)>() + more;
  };
  for (const StudyItem& item : plan.items) {
    const bool is_known = store.knows(item.key);
    const bool has_failed = !is_known && !failure_of(plan, store, item).empty();
    count(item.task, [&](Json& own) {
      add(own, "items", 1);
      add(own, "known", is_known ? 1 : 0);
      add(own, "failed", has_failed ? 1 : 0);
    });
  }
  const StudyForecast forecast(store, std::move(planned));
  for (const StudyJob& job : jobs_for(plan, study_to_do(plan, store, false))) {
    const double memory = forecast.memory(job);
    count(job.task, [&](Json& own) {
      add(own, "jobs", 1);
      add(own, "to_do", job.items.size());
      add(own, "seconds", forecast.seconds(job));
      add(own, "bytes", forecast.bytes(job));
      own["memory"] =
          std::isnan(memory) ? memory : std::max(memory, own.at("memory").get<double>());
    });
  }
  all["tasks"] = std::move(tasks);
  return all;
}

}  // namespace kvscope

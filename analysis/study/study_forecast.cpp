#include "analysis/study/study_forecast.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/base/nan.hpp"

namespace kvscope {

namespace {

std::vector<const StoredAnswer*> known_items(const Store& store) {
  std::vector<const StoredAnswer*> known;
  for (const auto& [key, answer] : store.answers()) {
    if (answer.failure.empty() && !answer.kind.empty()) known.push_back(&answer);
  }
  return known;
}

}  // namespace

StudyForecast::StudyForecast(const Store& store, std::map<std::string, double> planned)
    : StudyForecast(known_items(store), std::move(planned)) {}

StudyForecast::StudyForecast(std::span<const StoredAnswer* const> measured,
                             std::map<std::string, double> planned)
    : planned_(std::move(planned)) {
  constexpr double kLeast = 1e-4;  // seconds
  constexpr int kRounds = 30;
  std::map<std::pair<std::string, std::string>, std::size_t> counts;
  for (const StoredAnswer* one : measured) {
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

}  // namespace kvscope

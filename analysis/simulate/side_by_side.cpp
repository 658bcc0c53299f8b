#include "analysis/simulate/side_by_side.hpp"

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/base/device_memory.hpp"

namespace kvscope {

namespace {

constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

/// Runs body(i, worker) for i in [0, n) in the pool's threads, at most n_at_once at a time; those
/// that had no memory beside others by alone(i) in the end.
void run_side_by_side(std::size_t n, std::size_t n_at_once, ThreadPool& pool,
                      const std::function<void(std::size_t, int)>& body,
                      const std::function<void(std::size_t)>& alone) {
  std::mutex mutex;
  std::vector<std::size_t> again;
  const auto try_one = [&](std::size_t i, int worker) {
    try {
      body(i, worker);
    } catch (const DeviceMemoryError&) {
      const std::lock_guard lock(mutex);
      again.push_back(i);
    }
  };
  if (n_at_once >= n) {
    pool.parallel_for(static_cast<Index>(n),
                      [&](Index i, int worker) { try_one(static_cast<std::size_t>(i), worker); });
  } else {
    std::atomic<std::size_t> next{0};
    pool.parallel_for(static_cast<Index>(n_at_once), [&](Index, int worker) {
      try {
        for (std::size_t i = next++; i < n; i = next++) try_one(i, worker);
      } catch (...) {
        next = n;  // the others stop as well
        throw;
      }
    });
  }
  std::sort(again.begin(), again.end());
  for (const std::size_t i : again) alone(i);
}

std::size_t cases_at_once(const SimulationTask& task, const SimulationSetup& setup,
                          std::span<const std::size_t> cases, int n_threads) {
  if (n_threads == 1 || cases.size() < 2 || !task.cases_may_overlap()) return 1;
  Index longest = 0;
  for (const std::size_t c : cases) longest = std::max(longest, task.case_tokens(c));
  const std::size_t fit = sequences_at_once(setup.models, setup.options, longest);
  if (fit == kAll) return 1;
  const std::size_t n_pairs = std::max<std::size_t>(1, setup.pairs.size());
  const auto threads = static_cast<std::size_t>(n_threads);
  const std::size_t wanted = std::max<std::size_t>(2, (threads + n_pairs - 1) / n_pairs);
  // each has its dense prefix and a pair at least
  return std::max<std::size_t>(1, std::min({wanted, cases.size(), fit / 2}));
}

}  // namespace

std::size_t sequences_at_once(const SimulationModels& models, const SimulationOptions& options,
                              Index capacity) {
  constexpr double kShare = 0.9;  // of what is free: the rest is for what nobody foresees
  double needed = 0.0;
  std::optional<double> free;
  for (const Transformer* model : {models.verifier, models.draft}) {
    if (model == nullptr) continue;
    const auto memory = model->backend().memory_of(capacity, options.chunk);
    if (!memory) continue;
    needed += static_cast<double>(memory->needed);
    const auto found = static_cast<double>(memory->free);
    free = free ? std::min(*free, found) : found;
  }
  if (!free) return kAll;
  return static_cast<std::size_t>(std::clamp(kShare * *free / std::max(1.0, needed), 1.0, 1e6));
}

void for_each_pair(std::span<const std::size_t> pairs, std::size_t n_at_once, ThreadPool& pool,
                   const std::function<void(std::size_t, ThreadPool&)>& body) {
  if (pairs.size() == 1) {
    body(pairs.front(), pool);
    return;
  }
  run_side_by_side(
      pairs.size(), n_at_once, pool,
      [&](std::size_t i, int) {
        ThreadPool own(/*n_threads=*/1);
        body(pairs[i], own);
      },
      [&](std::size_t i) { body(pairs[i], pool); });
}

void for_each_case(const SimulationTask& task, const SimulationSetup& setup,
                   std::span<const std::size_t> cases, ThreadPool& pool,
                   const std::function<void(std::size_t, ThreadPool&)>& body) {
  const std::size_t n_at_once = cases_at_once(task, setup, cases, pool.n_threads());
  if (n_at_once == 1) {
    for (const std::size_t c : cases) body(c, pool);
    return;
  }
  ThreadPool lanes(static_cast<int>(n_at_once));
  std::vector<std::unique_ptr<ThreadPool>> pools;  // one of each lane
  for (int lane = 0; lane < lanes.n_threads(); ++lane)
    pools.push_back(std::make_unique<ThreadPool>(pool.n_threads()));
  run_side_by_side(
      cases.size(), n_at_once, lanes,
      [&](std::size_t i, int lane) { body(cases[i], *pools[static_cast<std::size_t>(lane)]); },
      [&](std::size_t i) { body(cases[i], pool); });
}

}  // namespace kvscope

#include "core/selectors/score_engine.hpp"

#include <algorithm>
#include <cmath>

#include "core/attention/key_kernels.hpp"

namespace kvscope {

ScoreEngine::ScoreEngine(ScorePrecision precision, ThreadPool* pool, bool keeps_keys)
    : precision_(precision), keeps_keys_(keeps_keys) {
  set_pool(pool);
}

void ScoreEngine::set_pool(ThreadPool* pool) {
  pool_ = pool;
  const auto n = pool == nullptr ? std::size_t{1} : static_cast<std::size_t>(pool->n_threads());
  while (workers_.size() < n) {
    workers_.push_back(std::make_unique<ScoreWorker>());
    workers_.back()->dots.set_precision(precision_);
  }
}

void ScoreEngine::run(Index n, const std::function<void(Index, ScoreWorker&)>& task) {
  if (pool_ == nullptr || n <= 1) {
    for (Index i = 0; i < n; ++i) task(i, *workers_.front());
    return;
  }
  pool_->parallel_for(
      n, [&](Index i, int worker) { task(i, *workers_[static_cast<std::size_t>(worker)]); });
}

std::byte* ScoreEngine::scratch_bytes(Use use, std::size_t n_bytes) {
  constexpr std::size_t kLine = 64;  // of the processor's cache: vectors do not straddle two
  Scratch& memory = scratch_[static_cast<std::size_t>(use)];
  if (memory.size < n_bytes) {
    memory.bytes.reset();
    memory.bytes = std::make_unique_for_overwrite<std::byte[]>(n_bytes + kLine);
    memory.size = n_bytes;
  }
  void* place = memory.bytes.get();
  std::size_t space = memory.size + kLine;
  return static_cast<std::byte*>(std::align(kLine, memory.size, place, space));
}

std::span<const double> ScoreEngine::inverse_norms(Index layer, Index kv_head,
                                                   TensorView<const float> k, TokenRange range,
                                                   double eps) {
  struct Norms {
    std::mutex mutex;
    std::vector<double> inverse;  // [n_keys]
    void truncate(Index n_keys) {
      inverse.resize(std::min(inverse.size(), static_cast<std::size_t>(n_keys)));
    }
  };
  Norms& known = kept<Norms>(
      nullptr, layer, kv_head, [] { return Norms(); }, eps);
  const std::lock_guard lock(known.mutex);
  std::vector<double>& inverse = known.inverse;
  const std::size_t n_known = inverse.size();
  if (n_known < static_cast<std::size_t>(std::max<Index>(range.end, 0))) {
    inverse.resize(static_cast<std::size_t>(range.end));
    const auto fresh = std::span(inverse).subspan(n_known);
    squared_norms(k.range(0, static_cast<Index>(n_known), range.end), fresh);
    for (double& x : fresh) x = 1.0 / std::max(std::sqrt(x), eps);
  }
  return std::span<const double>(inverse).subspan(
      static_cast<std::size_t>(range.begin),
      static_cast<std::size_t>(std::max<Index>(range.size(), 0)));
}

void ScoreEngine::truncate(Index n_keys) {
  for (auto& [place, one] : kept_) one->truncate(n_keys);
}

}  // namespace kvscope

#include "core/selectors/score_engine.hpp"

#include <algorithm>
#include <cmath>

#include "core/attention/key_kernels.hpp"
#include "core/base/work_tally.hpp"

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
  count_work(Counted::loops, 1);
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
  Norms* kept = nullptr;
  {
    const std::lock_guard lock(mutex_);
    auto& place = norms_[{layer, kv_head, 0, eps}];
    if (place == nullptr) place = std::make_unique<Norms>();
    kept = place.get();
  }
  const std::lock_guard lock(kept->mutex);
  std::vector<double>& inverse = kept->inverse;
  const auto n_known = keeps_keys_ ? inverse.size() : std::size_t{0};
  const auto n_wanted = static_cast<std::size_t>(std::max<Index>(range.end, 0));
  if (n_known < n_wanted) {
    inverse.resize(n_wanted);
    const auto fresh = std::span(inverse).subspan(n_known);
    squared_norms(k.range(0, static_cast<Index>(n_known), range.end), fresh);
    for (double& x : fresh) x = 1.0 / std::max(std::sqrt(x), eps);
  }
  return std::span<const double>(inverse).subspan(
      static_cast<std::size_t>(range.begin),
      static_cast<std::size_t>(std::max<Index>(range.size(), 0)));
}

const PageTable& ScoreEngine::pages(Index layer, Index kv_head, TensorView<const float> k,
                                    Index page_size, int bits) {
  Pages* kept = nullptr;
  {
    const std::lock_guard lock(mutex_);
    auto& place = pages_[{layer, kv_head, page_size, static_cast<double>(bits)}];
    if (place == nullptr) place = std::make_unique<Pages>(PageTable(k.dim(1), page_size, bits));
    kept = place.get();
  }
  const std::lock_guard lock(kept->mutex);
  if (!keeps_keys_) kept->table = PageTable(k.dim(1), page_size, bits);
  kept->table.append_up_to(k);
  return kept->table;
}

void ScoreEngine::truncate(Index n_keys) {
  for (auto& [place, norms] : norms_) {
    if (static_cast<Index>(norms->inverse.size()) > n_keys)
      norms->inverse.resize(static_cast<std::size_t>(n_keys));
  }
  for (auto& [place, pages] : pages_) pages->table.truncate(n_keys);
}

}  // namespace kvscope

// What all scoring of selectors runs on: threads, the precision of products, and what methods
// reuse of the keys they have seen (norms, page boxes), kept per layer and KV head and grown as
// the cache grows.
//
// A SelectorRun owns one and hands it out with every question. Work is divided by list owner,
// each of which one thread answers alone and in one order, so the lists are the same for any
// number of threads.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <tuple>
#include <vector>

#include "core/base/parallel.hpp"
#include "core/selectors/key_dots.hpp"
#include "core/selectors/page_table.hpp"

namespace kvscope {

/// Scratch memory of one thread.
struct ScoreWorker {
  KeyDots dots;
};

class ScoreEngine {
 public:
  /// f32 for live runs, whose keys and queries are f32 themselves; f64 where lists are compared.
  /// pool may be null.
  explicit ScoreEngine(ScorePrecision precision = ScorePrecision::f64, ThreadPool* pool = nullptr,
                       bool keeps_keys = true);

  /// Threads for the calls to come; null = the calling thread. Not while run() is running.
  void set_pool(ThreadPool* pool);
  ScorePrecision precision() const { return precision_; }
  int n_workers() const { return static_cast<int>(workers_.size()); }

  /// Calls task(index, worker) for each index in [0, n), on the pool's threads.
  void run(Index n, const std::function<void(Index, ScoreWorker&)>& task);

  /// Memory of a call, grown as needed and never set: what lies in it is lost with the next
  /// question for the same use.
  enum class Use { scores_of_owners, softmax };
  template <class T>
  std::span<T> scratch(Use use, std::size_t n) {
    return {reinterpret_cast<T*>(scratch_bytes(use, n * sizeof(T))), n};
  }

  /// 1 / max(|k|, eps) of the keys [range.size()] in `range` of one KV head's k [n_ctx, d_head],
  /// from position 0.
  std::span<const double> inverse_norms(Index layer, Index kv_head, TensorView<const float> k,
                                        TokenRange range, double eps);
  /// Boxes of all pages of one KV head's keys. bits: see PageTable.
  const PageTable& pages(Index layer, Index kv_head, TensorView<const float> k, Index page_size,
                         int bits);

  /// Forgets what it keeps of positions >= n_keys. Threads must not be scoring.
  void truncate(Index n_keys);

 private:
  /// Layer, KV head, and what distinguishes several.
  using Place = std::tuple<Index, Index, Index, double>;
  ScorePrecision precision_;
  ThreadPool* pool_ = nullptr;
  /// False: a stand-in for calls without an engine, which remembers nothing.
  bool keeps_keys_ = true;
  std::vector<std::unique_ptr<ScoreWorker>> workers_;
  struct Scratch {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t size = 0;
  };
  std::byte* scratch_bytes(Use use, std::size_t n_bytes);
  std::array<Scratch, 2> scratch_;
  std::mutex mutex_;  // of the two maps; what they point to is grown by the thread that asks for it
  struct Norms {
    std::mutex mutex;
    std::vector<double> inverse;  // [n_keys]
  };
  struct Pages {
    explicit Pages(PageTable boxes) : table(std::move(boxes)) {}
    std::mutex mutex;
    PageTable table;
  };
  std::map<Place, std::unique_ptr<Norms>> norms_;
  std::map<Place, std::unique_ptr<Pages>> pages_;
};

}  // namespace kvscope

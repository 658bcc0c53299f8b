// What all scoring of selectors runs on: threads, the precision of products, and what methods
// keep of the keys they have seen (norms, page boxes, sums), per layer and KV head, grown as the
// cache grows and cut when drafts are rejected.
//
// A SelectorRun owns one and hands it out with every question. Work is divided by list owner,
// each of which one thread answers alone and in one order, so the lists are the same for any
// number of threads.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <tuple>
#include <typeindex>
#include <vector>

#include "core/base/parallel.hpp"
#include "core/selectors/key_dots.hpp"
#include "core/selectors/page_rows.hpp"

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

  /// What grows with the cache of one layer and KV head: a T, made by `make` when it is first asked
  /// for, and told truncate(n_keys) when positions >= n_keys are forgotten. owner: whose it is, a
  /// method; null: of all that ask for this T and tag. What cannot be cut exactly (a fit) is
  /// forgotten whole, as core/selectors/fit_history.hpp says. A stand-in for calls without an
  /// engine makes it anew each time: ask once in a call, and for `known` afterwards.
  template <class T, class Make>
  T& kept(const void* owner, Index layer, Index kv_head, const Make& make, double tag = 0.0) {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<Kept>& place = kept_[{typeid(T), owner, layer, kv_head, tag}];
    if (place == nullptr || !keeps_keys_) place = std::make_unique<KeptAs<T>>(make);
    return static_cast<KeptAs<T>&>(*place).value;
  }
  template <class T>
  T& kept(const void* owner, Index layer, Index kv_head) {
    return kept<T>(owner, layer, kv_head, [] { return T(); });
  }
  template <class T>
  T& kept(Index layer, Index kv_head) {
    return kept<T>(nullptr, layer, kv_head);
  }
  /// What kept() gave last; null: nobody asked.
  template <class T>
  const T* known(const void* owner, Index layer, Index kv_head, double tag = 0.0) {
    const std::lock_guard lock(mutex_);
    const auto place = kept_.find({typeid(T), owner, layer, kv_head, tag});
    return place == kept_.end() ? nullptr : &static_cast<const KeptAs<T>&>(*place->second).value;
  }

  /// 1 / max(|k|, eps) of the keys [range.size()] in `range` of one KV head's k [n_ctx, d_head],
  /// from position 0.
  std::span<const double> inverse_norms(Index layer, Index kv_head, TensorView<const float> k,
                                        TokenRange range, double eps);
  /// Rows of all pages of one KV head's keys. empty: the statistic of no key.
  template <class Statistic>
  const PageRows<Statistic>& pages(Index layer, Index kv_head, TensorView<const float> k,
                                   Index page_size, const Statistic& empty) {
    struct Pages {
      std::mutex mutex;
      PageRows<Statistic> table;
      void truncate(Index n_keys) { table.truncate(n_keys); }
    };
    Pages& held = kept<Pages>(
        nullptr, layer, kv_head,
        [&] {
          return Pages{{}, PageRows<Statistic>(k.dim(1), page_size, empty)};
        },
        static_cast<double>(page_size) + empty.tag());
    const std::lock_guard lock(held.mutex);
    held.table.append_up_to(k);
    return held.table;
  }

  /// Forgets what it keeps of positions >= n_keys. Threads must not be scoring.
  void truncate(Index n_keys);

 private:
  struct Kept {
    virtual ~Kept() = default;
    virtual void truncate(Index n_keys) = 0;
  };
  template <class T>
  struct KeptAs final : Kept {
    template <class Make>
    explicit KeptAs(const Make& make) : value(make()) {}
    void truncate(Index n_keys) override { value.truncate(n_keys); }
    T value;
  };
  using Place = std::tuple<std::type_index, const void*, Index, Index, double>;
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
  std::mutex mutex_;  // of the map; what it points to is grown by the thread that asks for it
  std::map<Place, std::unique_ptr<Kept>> kept_;
};

}  // namespace kvscope

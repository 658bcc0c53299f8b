#include "core/base/parallel.hpp"

#include <hwy/cache_control.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace kvscope {

namespace {
// A decode step runs some hundred short loops: waiting threads look this many times before they
// sleep, because waking a thread costs more than such a loop.
constexpr int kSpins = 4000;

template <class Condition>
bool spin_until(Condition condition) {
  for (int i = 0; i < kSpins; ++i) {
    if (condition()) return true;
    hwy::Pause();
  }
  return false;
}

/// More threads than this never help, and their stacks would take the memory that work needs.
int most_threads() {
  return std::max(64, 4 * available_cores());
}
}  // namespace

struct ThreadPool::Impl {
  std::vector<std::thread> threads;
  std::mutex mutex;  // for sleeping and `failure`
  std::condition_variable work_ready;
  std::condition_variable work_done;
  std::atomic<std::uint64_t> generation{
      0};  // counts loops, so that a worker takes part in each one once
  std::atomic<int> n_busy{0};
  std::atomic<bool> stopping{false};
  std::atomic<bool> in_use{false};  // by a loop

  const std::function<void(std::int64_t, int)>* body = nullptr;
  std::int64_t n = 0;
  std::atomic<std::int64_t> next{0};
  std::exception_ptr failure;
  std::int64_t failed_index = 0;

  /// Whose loop this thread is in, and as which worker; loops within it run in this thread.
  struct Place {
    const Impl* pool = nullptr;
    int worker = 0;
  };
  static thread_local Place place;

  void run_inline(std::int64_t n_indices, const std::function<void(std::int64_t, int)>& f) const {
    const int worker = place.pool == this ? place.worker : 0;
    for (std::int64_t i = 0; i < n_indices; ++i) f(i, worker);
  }

  void take_indices(int worker) {
    const Place before = std::exchange(place, {this, worker});
    take_indices_as(worker);
    place = before;
  }

  void take_indices_as(int worker) {
    for (;;) {
      const std::int64_t i = next.fetch_add(1, std::memory_order_relaxed);
      if (i >= n) return;
      try {
        (*body)(i, worker);
      } catch (...) {
        std::lock_guard lock(mutex);
        // Indices are taken in order: the least that fails is among those that were begun.
        if (!failure || i < failed_index) {
          failure = std::current_exception();
          failed_index = i;
        }
        next.store(n, std::memory_order_relaxed);
      }
    }
  }

  void run_worker(int worker) {
    std::uint64_t seen = 0;
    const auto is_called = [&] { return stopping || generation != seen; };
    for (;;) {
      if (!spin_until(is_called)) {
        std::unique_lock lock(mutex);
        work_ready.wait(lock, is_called);
      }
      if (stopping) return;
      seen = generation;
      take_indices(worker);
      if (n_busy.fetch_sub(1) == 1) {
        std::lock_guard lock(mutex);
        work_done.notify_one();
      }
    }
  }
};

thread_local ThreadPool::Impl::Place ThreadPool::Impl::place;

ThreadPool::ThreadPool(int n_threads) : impl_(std::make_unique<Impl>()) {
  if (n_threads <= 0) n_threads = available_cores();
  n_threads = std::min(n_threads, most_threads());
  impl_->threads.reserve(static_cast<std::size_t>(n_threads));
  for (int worker = 1; worker < n_threads; ++worker) {
    try {
      impl_->threads.emplace_back([impl = impl_.get(), worker] { impl->run_worker(worker); });
    } catch (const std::system_error&) {
      return;  // a limit on processes or memory: work goes on with the threads that there are
    }
  }
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->work_ready.notify_all();
  for (auto& thread : impl_->threads) thread.join();
}

int ThreadPool::n_threads() const {
  return static_cast<int>(impl_->threads.size()) + 1;
}

void ThreadPool::parallel_for(std::int64_t n, const std::function<void(std::int64_t, int)>& body) {
  if (n <= 0) return;
  // Within a loop of this pool, or beside another thread's loop, the indices run here.
  if (n == 1 || impl_->threads.empty() || impl_->in_use.exchange(true)) {
    impl_->run_inline(n, body);
    return;
  }
  impl_->body = &body;
  impl_->n = n;
  impl_->next = 0;
  impl_->failure = nullptr;
  impl_->n_busy = static_cast<int>(impl_->threads.size());
  {
    std::lock_guard lock(impl_->mutex);
    ++impl_->generation;
  }
  impl_->work_ready.notify_all();
  impl_->take_indices(0);
  const auto is_done = [&] { return impl_->n_busy == 0; };
  if (!spin_until(is_done)) {
    std::unique_lock lock(impl_->mutex);
    impl_->work_done.wait(lock, is_done);
  }
  const std::exception_ptr failure = std::exchange(impl_->failure, nullptr);
  impl_->in_use = false;
  if (failure) std::rethrow_exception(failure);
}

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    const int n = CPU_COUNT(&set);
    if (n > 0) return n;
  }
  const unsigned n = std::thread::hardware_concurrency();
  return n > 0 ? static_cast<int>(n) : 1;
}

}  // namespace kvscope

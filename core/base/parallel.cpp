#include "core/base/parallel.hpp"

#include <hwy/cache_control.h>
#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace kvscope {

namespace {
// A decode step runs some hundred short loops: waiting threads look this many times before they sleep,
// because waking a thread costs more than such a loop.
constexpr int kSpins = 4000;

template <class Condition>
bool spin_until(Condition condition) {
  for (int i = 0; i < kSpins; ++i) {
    if (condition()) return true;
    hwy::Pause();
  }
  return false;
}
}  // namespace

struct ThreadPool::Impl {
  std::vector<std::thread> threads;
  std::mutex mutex;  // for sleeping and `failure`
  std::condition_variable work_ready;
  std::condition_variable work_done;
  std::atomic<std::uint64_t> generation{0};  // counts loops, so that a worker takes part in each one once
  std::atomic<int> n_busy{0};
  std::atomic<bool> stopping{false};

  const std::function<void(std::int64_t, int)>* body = nullptr;
  std::int64_t n = 0;
  std::atomic<std::int64_t> next{0};
  std::exception_ptr failure;

  void take_indices(int worker) {
    for (;;) {
      const std::int64_t i = next.fetch_add(1, std::memory_order_relaxed);
      if (i >= n) return;
      try {
        (*body)(i, worker);
      } catch (...) {
        std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
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

ThreadPool::ThreadPool(int n_threads) : impl_(std::make_unique<Impl>()) {
  if (n_threads <= 0) n_threads = available_cores();
  for (int worker = 1; worker < n_threads; ++worker) {
    impl_->threads.emplace_back([this, worker] { impl_->run_worker(worker); });
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

int ThreadPool::n_threads() const { return static_cast<int>(impl_->threads.size()) + 1; }

void ThreadPool::parallel_for(std::int64_t n,
                              const std::function<void(std::int64_t, int)>& body) {
  if (n <= 0) return;
  if (n == 1 || impl_->threads.empty()) {
    for (std::int64_t i = 0; i < n; ++i) body(i, 0);
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
  if (impl_->failure) std::rethrow_exception(std::exchange(impl_->failure, nullptr));
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

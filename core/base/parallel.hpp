// Parallel loops whose results do not depend on the thread count: every index writes
// its own output.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace kvscope {

/// A fixed set of worker threads; the calling thread takes part, so ThreadPool(1) starts none. One
/// loop runs at a time: a call within a loop, or from a second thread, runs in that thread alone.
class ThreadPool {
 public:
  /// n_threads <= 0: as many as cores. Fewer start where a limit says so, or n_threads is absurd.
  explicit ThreadPool(int n_threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int n_threads() const;

  /// Calls body(index, worker) once for each index in [0, n), in any order, worker in [0,
  /// n_threads). `worker` may pick scratch memory, never the result. Rethrows the first exception
  /// after all stopped.
  void parallel_for(std::int64_t n, const std::function<void(std::int64_t, int)>& body);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Number of cores this process may use (respects affinity masks), at least 1.
int available_cores();

}  // namespace kvscope

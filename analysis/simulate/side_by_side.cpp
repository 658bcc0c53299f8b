#include "analysis/simulate/side_by_side.hpp"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <limits>
#include <mutex>

#include "core/base/device_memory.hpp"

namespace kvscope {

namespace {

constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

/// Runs by case, then by place among its pairs; a case's opening comes before its pairs.
struct Place {
  std::size_t of_case = kNone;
  std::size_t of_pair = kNone;
  bool operator<(const Place& other) const {
    return std::pair(of_case, of_pair + 1) < std::pair(other.of_case, other.of_pair + 1);
  }
};

class Queue {
 public:
  Queue(std::span<const CaseWork> cases, std::size_t n_sequences, int n_threads,
        const CaseCalls& calls)
      : most_(std::max<std::size_t>(2, n_sequences)),
        n_free_(static_cast<std::size_t>(n_threads)),
        calls_(calls) {
    for (const CaseWork& work : cases) {
      State& state = cases_.emplace_back(State{&work, {}, {}, 0, false});
      for (std::size_t i = 0; i < work.pairs.size(); ++i) state.left.push_back(i);
    }
  }

  /// Takes from the queue until nothing is left; one of its threads calls it.
  void work() {
    std::unique_lock lock(mutex_);
    while (std::optional<Job> job = take(lock)) {
      lock.unlock();
      std::exception_ptr failure;
      try {
        run(*job);
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      finish(*job, failure);
      changed_.notify_all();
    }
  }

  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  struct State {
    const CaseWork* work;
    OpenCase open;
    std::vector<std::size_t> left;  // places in work->pairs, rising
    std::size_t n_running;          // its opening counts
    bool is_opening;
  };
  struct Job {
    Place place;  // of_pair is kNone for an opening
    std::size_t n_threads = 1;
    bool was_alone = false;      // when it began
    std::size_t number = kNone;  // of all that began
  };

  State& state_of(const Job& job) { return cases_[job.place.of_case]; }

  void run(const Job& job) {
    State& state = state_of(job);
    ThreadPool own(static_cast<int>(job.n_threads));
    if (job.place.of_pair == kNone) {
      OpenCase opened = calls_.open(state.work->index, own);
      const std::lock_guard lock(mutex_);
      state.open = std::move(opened);
      return;
    }
    const std::size_t pair = state.work->pairs[job.place.of_pair];
    UnitResult unit = state.open(pair, own);
    try {
      calls_.done(state.work->index, pair, std::move(unit));
    } catch (...) {
      const std::lock_guard lock(mutex_);
      is_stopped_ = true;  // nobody takes results any more
      throw;
    }
  }

  /// Waits until there is something to do; empty when there will be nothing more.
  std::optional<Job> take(std::unique_lock<std::mutex>& lock) {
    for (;;) {
      if (is_stopped_) return std::nullopt;
      if (n_free_ > 0) {
        if (const std::optional<Place> place = next_place()) return begin(*place);
      }
      if (n_running_ == 0) return std::nullopt;
      changed_.wait(lock);
    }
  }

  /// Of the earliest open case that has one, else the next case; none that comes after a failure.
  std::optional<Place> next_place() const {
    for (std::size_t c = 0; c < cases_.size(); ++c) {
      const State& state = cases_[c];
      if (!state.open || state.left.empty()) continue;
      const Place place{c, state.left.front()};
      if (may_begin(place, /*n_more=*/1)) return place;
    }
    for (std::size_t c = 0; c < cases_.size(); ++c) {
      const State& state = cases_[c];
      if (state.open || state.is_opening || state.left.empty()) continue;
      const Place place{c, kNone};
      if (may_begin(place, /*n_more=*/2)) return place;
    }
    return std::nullopt;
  }

  /// Alone anything may, since nothing would ever begin otherwise.
  bool may_begin(const Place& place, std::size_t n_more) const {
    const bool is_before_failure = failed_.of_case == kNone || place < failed_;
    return is_before_failure && (n_alive_ + n_more <= most_ || n_running_ == 0);
  }

  Job begin(const Place& place) {
    State& state = cases_[place.of_case];
    if (place.of_pair == kNone) {
      state.is_opening = true;
    } else {
      state.left.erase(state.left.begin());
    }
    const bool is_alone = n_running_ == 0;
    ++state.n_running;
    ++n_running_;
    ++n_alive_;
    const std::size_t n_threads = std::max<std::size_t>(1, n_free_ / n_to_share(place));
    n_free_ -= n_threads;
    return {place, n_threads, is_alone, n_begun_++};
  }

  /// Among how many the free threads are shared: this one, and what could begin beside it now.
  std::size_t n_to_share(const Place& place) const {
    std::size_t n_cases = 0, n_pairs = 0;
    for (const State& state : cases_) {
      if (!state.open && !state.is_opening && !state.left.empty()) ++n_cases;
      n_pairs += state.open ? state.left.size() : 0;
    }
    const std::size_t n_room = most_ > n_alive_ ? most_ - n_alive_ : 0;
    if (place.of_pair == kNone) return 1 + std::min(n_cases, n_room / 2);
    return 1 + std::min(n_cases + n_pairs, n_room);
  }

  void finish(const Job& job, const std::exception_ptr& failure) {
    State& state = state_of(job);
    const bool is_opening = job.place.of_pair == kNone;
    if (is_opening) state.is_opening = false;
    n_free_ += job.n_threads;
    --state.n_running;
    --n_running_;
    // an opening leaves its case behind
    const bool is_left_behind = is_opening && state.open;
    if (!is_left_behind) --n_alive_;
    if (failure) fail(job, failure);
    if (state.open && state.n_running == 0 && state.left.empty()) close(state);
  }

  void close(State& state) {
    state.open = nullptr;
    --n_alive_;
  }

  void fail(const Job& job, const std::exception_ptr& failure) {
    try {
      std::rethrow_exception(failure);
    } catch (const DeviceMemoryError&) {
      if (try_again(job)) return;
    } catch (...) {
    }
    if (failed_.of_case != kNone && !(job.place < failed_)) return;
    failed_ = job.place;
    failure_ = failure;
    // What comes after it is left; so are the cases that were opened for it.
    for (std::size_t c = 0; c < cases_.size(); ++c) {
      State& state = cases_[c];
      std::erase_if(state.left, [&](std::size_t i) { return !(Place{c, i} < failed_); });
      if (state.open && state.n_running == 0 && state.left.empty() && &state != &state_of(job))
        close(state);
    }
  }

  /// Makes room by closing cases of which nothing runs; false if the run had all room there is.
  /// What ran beside it counts even if it has ended since: its memory was taken then.
  bool try_again(const Job& job) {
    State& own = state_of(job);
    bool had_company = !job.was_alone || n_begun_ > job.number + 1;
    for (State& state : cases_) {
      if (&state == &own || !state.open || state.n_running > 0) continue;
      close(state);
      had_company = true;
    }
    if (!had_company) return false;
    most_ = std::max<std::size_t>(2, std::min(most_, n_alive_));
    if (job.place.of_pair != kNone)
      own.left.insert(std::lower_bound(own.left.begin(), own.left.end(), job.place.of_pair),
                      job.place.of_pair);
    return true;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<State> cases_;
  std::size_t most_;         // sequences that may exist
  std::size_t n_alive_ = 0;  // that do: open cases, openings and runs
  std::size_t n_running_ = 0;
  std::size_t n_begun_ = 0;
  std::size_t n_free_;  // threads
  bool is_stopped_ = false;
  Place failed_;  // the first
  std::exception_ptr failure_;
  const CaseCalls& calls_;
};

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
  if (!free) return kNone;
  return static_cast<std::size_t>(std::clamp(kShare * *free / std::max(1.0, needed), 1.0, 1e6));
}

void run_cases(std::span<const CaseWork> cases, std::size_t n_sequences, ThreadPool& pool,
               const CaseCalls& calls) {
  Queue queue(cases, n_sequences, pool.n_threads(), calls);
  pool.parallel_for(pool.n_threads(), [&](Index, int) { queue.work(); });
  queue.rethrow();
}

}  // namespace kvscope

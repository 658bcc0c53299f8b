#include "gui/model/jobs/jobs.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

#include "core/base/error.hpp"

namespace kvscope::gui {

namespace {
using Clock = std::chrono::steady_clock;
constexpr auto kProgressInterval = std::chrono::milliseconds(33);
}  // namespace

struct Job::Shared {
  mutable std::mutex mutex;
  JobStatus status;
  std::stop_source stop;
  std::function<std::any(JobContext&)> work;
  std::function<void(std::any)> deliver;
  std::any value;

  void set_state(JobState state) {
    const std::lock_guard lock(mutex);
    status.state = state;
  }
};

JobStatus Job::status() const {
  if (!shared_) return {};
  const std::lock_guard lock(shared_->mutex);
  return shared_->status;
}

void Job::cancel() const {
  if (shared_) shared_->stop.request_stop();
}

struct JobRunner::Impl {
  using SharedJob = std::shared_ptr<Job::Shared>;

  std::function<void()> wake;
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::array<std::deque<SharedJob>, 4> waiting;  // by Lane
  std::vector<SharedJob> in_order;               // active ones
  std::deque<SharedJob> finished;                // to be delivered
  bool ending = false;
  std::vector<std::jthread> threads;

  void tell() const {
    std::function<void()> call;
    {
      const std::lock_guard lock(mutex);
      call = wake;  // taken away when the runner ends
    }
    if (call) call();
  }

  void run_lane(std::size_t lane, int n_threads) {
    ThreadPool pool(n_threads);
    while (true) {
      SharedJob job;
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return ending || !waiting[lane].empty(); });
        if (ending) return;
        job = waiting[lane].front();
        waiting[lane].pop_front();
      }
      run(*job, pool);
      {
        const std::lock_guard lock(mutex);
        std::erase(in_order, job);
        finished.push_back(job);
      }
      changed.notify_all();
      tell();
    }
  }

  void run(Job::Shared& job, ThreadPool& pool) {
    if (job.stop.stop_requested()) {
      job.set_state(JobState::cancelled);
      return;
    }
    job.set_state(JobState::running);
    Clock::time_point last{};
    std::mutex progress_mutex;
    JobContext context{pool, job.stop.get_token(), [&](const Progress& progress) {
                         {
                           const std::lock_guard own(progress_mutex);
                           const auto now = Clock::now();
                           if (now - last < kProgressInterval && progress.done != progress.total)
                             return;
                           last = now;
                           const std::lock_guard lock(job.mutex);
                           job.status.progress = progress;
                         }
                         tell();
                       }};
    std::string error;
    JobState state = JobState::done;
    try {
      std::any value = job.work(context);
      const std::lock_guard lock(job.mutex);
      job.value = std::move(value);
    } catch (const Interrupted&) {
      state = JobState::cancelled;
    } catch (const std::bad_alloc&) {
      error = "not enough memory: close traces, or lower the cache limit in the settings";
    } catch (const std::exception& e) {
      error = e.what();
    }
    if (!error.empty()) state = JobState::failed;
    if (state == JobState::failed && job.stop.stop_requested()) state = JobState::cancelled;
    job.work = nullptr;  // what it captured is let go here, not when the last handle ends
    const std::lock_guard lock(job.mutex);
    job.status.error = std::move(error);
    job.status.state = state;
  }
};

JobRunner::JobRunner(std::function<void()> wake, int n_threads) : impl_(new Impl) {
  impl_->wake = std::move(wake);
  const int cores = n_threads > 0 ? n_threads : available_cores();
  // Tiles and rows are short: one extra thread each way is enough, and analyses take the machine.
  const int quick = std::max(1, cores / 2);
  try {
    const std::array<int, 4> n_of_lane = {quick, cores, 1, 1};
    for (std::size_t lane = 0; lane < n_of_lane.size(); ++lane)
      impl_->threads.emplace_back(
          [impl = impl_.get(), lane, n = n_of_lane[lane]] { impl->run_lane(lane, n); });
  } catch (const std::system_error&) {
    end();
    throw IoError(
        "cannot start the four threads for background work: a limit on processes or memory "
        "(ulimit -u, -v) is reached; end other programs or raise it");
  }
}

JobRunner::~JobRunner() {
  end();
}

void JobRunner::end() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->ending = true;
    impl_->wake = nullptr;
    for (const auto& job : impl_->in_order) job->stop.request_stop();
  }
  impl_->changed.notify_all();
  impl_->threads.clear();
}

Job JobRunner::start(std::string title, Lane lane, std::function<std::any(JobContext&)> work,
                     std::function<void(std::any)> deliver, bool urgent) {
  auto job = std::make_shared<Job::Shared>();
  job->status.title = std::move(title);
  job->status.lane = lane;
  job->work = std::move(work);
  job->deliver = std::move(deliver);
  {
    const std::lock_guard lock(impl_->mutex);
    auto& waiting = impl_->waiting[static_cast<std::size_t>(lane)];
    urgent ? waiting.push_front(job) : waiting.push_back(job);
    impl_->in_order.push_back(job);
  }
  impl_->changed.notify_all();
  return Job(job);
}

bool JobRunner::poll() {
  std::deque<std::shared_ptr<Job::Shared>> finished;
  {
    const std::lock_guard lock(impl_->mutex);
    finished.swap(impl_->finished);
  }
  for (const auto& job : finished) {
    const bool is_done = job->status.state == JobState::done;
    if (is_done && job->stop.stop_requested()) {
      job->set_state(JobState::cancelled);  // after it ended, but before anybody had its value
    } else if (is_done && job->deliver) {
      job->deliver(std::move(job->value));
    }
    job->deliver = nullptr;
    job->value.reset();
  }
  return !finished.empty();
}

std::vector<Job> JobRunner::active() const {
  const std::lock_guard lock(impl_->mutex);
  std::vector<Job> jobs;
  for (const auto& job : impl_->in_order) jobs.push_back(Job(job));
  return jobs;
}

bool JobRunner::is_computing() const {
  const std::lock_guard lock(impl_->mutex);
  return std::ranges::any_of(impl_->in_order, [](const auto& job) {
    return job->status.lane != Lane::programs;  // written once, before it was shared
  });
}

bool JobRunner::drain(double seconds) {
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (true) {
    poll();
    std::unique_lock lock(impl_->mutex);
    if (impl_->in_order.empty() && impl_->finished.empty()) return true;
    const bool something = impl_->changed.wait_until(
        lock, std::chrono::time_point_cast<Clock::duration>(end),
        [&] { return !impl_->finished.empty() || impl_->in_order.empty(); });
    if (!something) return false;
  }
}

}  // namespace kvscope::gui

// Background work: lanes of worker threads, so that a long analysis never keeps a tile waiting.
//
// A job runs on a lane's thread with that lane's ThreadPool; whatever it returns is handed over on
// the caller's thread, in poll(). Nothing of a job touches the session: it captures what it reads.
#pragma once

#include <any>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "core/base/fields.hpp"
#include "core/base/parallel.hpp"
#include "core/base/progress.hpp"

namespace kvscope::gui {

/// quick: slices, tiles, rows, files; what a glance waits for. heavy: analyses and replays.
/// programs: other programs, which are only waited for. questions: those that answer in a moment,
/// also while one of them runs.
enum class Lane { quick, heavy, programs, questions };

/// What a job may use while it runs.
struct JobContext {
  ThreadPool& pool;
  std::stop_token stop;
  ProgressFn progress;
};

enum class JobState { waiting, running, done, failed, cancelled };

/// What everybody may know of a job, as of now.
struct JobStatus {
  std::string title;  // "Geometry of layer 3", for the status bar
  Lane lane = Lane::quick;
  JobState state = JobState::waiting;
  Progress progress;
  std::string error;  // failed: a sentence
  bool is_over() const { return state != JobState::waiting && state != JobState::running; }
};

/// A handle on one job. Copies share it; the job does not end with its last handle.
class Job {
 public:
  Job() = default;
  explicit operator bool() const { return shared_ != nullptr; }
  JobStatus status() const;
  /// Asks the job to stop; one that waits never starts.
  void cancel() const;
  struct Shared;

 private:
  friend class JobRunner;
  explicit Job(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
  std::shared_ptr<Shared> shared_;
};

class JobRunner {
 public:
  /// `wake` is called from worker threads when there is something to poll or to show (at most some
  /// thirty times a second for progress); may be empty. n_threads <= 0: the cores of this process.
  /// Throws IoError if its four threads cannot be started.
  explicit JobRunner(std::function<void()> wake = {}, int n_threads = 0);
  /// Cancels everything and waits for the threads.
  ~JobRunner();
  JobRunner(const JobRunner&) = delete;
  JobRunner& operator=(const JobRunner&) = delete;

  /// Starts work; `deliver` gets its value in poll(), and is not called if the work failed or was
  /// cancelled. Newer jobs of a lane go first when `urgent`. An exception becomes the status'
  /// error: its sentence.
  Job start(std::string title, Lane lane, std::function<std::any(JobContext&)> work,
            std::function<void(std::any)> deliver, bool urgent = false);

  /// Calls what finished jobs want to deliver. Returns true if anything was delivered.
  bool poll();

  /// Jobs that wait or run, in order of their start.
  std::vector<Job> active() const;
  bool is_idle() const { return active().empty(); }
  /// Something waits or runs on the lanes of this program, or another program is asked a question.
  bool is_computing() const;
  /// Waits until nothing waits or runs and everything is delivered; for tests.
  /// False if `seconds` passed first.
  bool drain(double seconds);

 private:
  void end();  // cancels everything and waits for the threads

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvscope::gui

#include "analysis/cli/runs/study_runner.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>

#include "analysis/cli/runs/study_job.hpp"
#include "analysis/runs/leases.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/new_file.hpp"

namespace kvscope::cli {

namespace {

namespace fs = std::filesystem;

Work study_work(const LoadedStudy& study, const std::vector<bool>& to_do, int n_threads) {
  const StudyPlan& plan = study.plan;
  const auto jobs = std::make_shared<const std::vector<StudyJob>>(jobs_for(plan, to_do));
  const StudyForecast forecast(study.store);
  std::vector<double> seconds;
  Work work;
  work.command = "study run";
  for (const StudyJob& job : *jobs) {
    work.keys.push_back(job.key);
    const double known = forecast.seconds(job);
    seconds.push_back(std::isnan(known) ? 0.0 : known);
  }
  work.seconds = [seconds](std::size_t i) { return seconds[i]; };
  work.state = [&plan, jobs](std::size_t i, const Store& store) {
    return state_of_job(plan, store, (*jobs)[i]);
  };
  work.run = [&study, jobs, n_threads](std::size_t i, const Lease* lease,
                                       const ProgressFn& progress, std::stop_token stop) {
    const StudyJob& job = (*jobs)[i];
    StudyJobRun run{.job = job,
                    .items = open_items(study.plan, study.store, job),
                    .recording = {},
                    .scratch = study.store.scratch() / job.key,
                    .n_threads = n_threads};
    if (job.is_recording) run.recording = study_recording(study.store.folder(), job.key);
    if (lease != nullptr && lease->is_shared()) run.scratch += "-" + study.store.worker();
    std::error_code error;
    for (const fs::path& folder : {study.store.scratch(), study.store.recordings()})
      fs::create_directories(folder, error);
    return do_study_job(run, progress, std::move(stop));
  };
  work.fail = [&study, jobs](std::size_t i, const std::string& sentence) {
    std::vector<Json> lines;
    for (const StudyItem* item : open_items(study.plan, study.store, (*jobs)[i]))
      lines.push_back(failed_line((*jobs)[i], *item, sentence));
    return lines;
  };
  work.is_exclusive = [jobs](std::size_t i) { return (*jobs)[i].is_recording; };
  work.step_name = "jobs";
  return work;
}

/// Removes what workers left that were killed, or overtaken, at items that are answered by now.
void clear_scratch(Store& store) {
  store.refresh();
  const std::vector<std::string> busy = Leases(store.leases(), store.worker()).at_work();
  std::error_code none;
  std::vector<fs::path> left;
  for (auto entry = fs::directory_iterator(store.scratch(), none);
       !none && entry != fs::directory_iterator(); entry.increment(none))
    left.push_back(entry->path());
  for (const fs::path& file : left) {
    const std::string name = file.filename();
    const std::string key = name.substr(0, name.find_first_of("-.", name.find('-') + 1));
    if (store.find(key) == nullptr || std::ranges::find(busy, key) != busy.end()) continue;
    remove_store(file);
    remove_quietly(file);
  }
}

}  // namespace

void run_study(LoadedStudy& study, const std::vector<bool>& to_do, const WorkerOptions& workers,
               const std::vector<std::string>& words, const WorkOptions& options) {
  const Work work = study_work(study, to_do, options.n_threads());
  try {
    workers.run(work, study.store, words, OnFailure::keep, options);
    clear_scratch(study.store);
  } catch (const Interrupted&) {
    study.store.refresh();
    throw Interrupted("study {}: stopped; the same command continues", study.file.name);
  }
}

}  // namespace kvscope::cli

#include "analysis/cli/study_runner.hpp"

#include <map>
#include <string>
#include <vector>

#include "analysis/base/checked_lines.hpp"
#include "analysis/cli/output.hpp"
#include "analysis/cli/study_job.hpp"
#include "analysis/cli/unit_options.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/new_file.hpp"

namespace kvscope::cli {

namespace {

namespace fs = std::filesystem;

/// Jobs at a time: the files of their units lie in one folder until they are in the store.
constexpr std::size_t kMostJobs = 4000;

/// What is left of jobs at which nobody is any more, once there is nothing to go on with.
void remove_scratch(const fs::path& scratch) {
  std::map<std::string, std::vector<fs::path>> files;  // by the key that their names begin with
  for (const auto& entry : fs::directory_iterator(scratch)) {
    const std::string name = entry.path().filename().string();
    files[name.substr(0, name.find('.'))].push_back(entry.path());
  }
  for (const auto& [key, own] : files) {
    const fs::path lock_file = scratch / (key + ".lock");
    const auto lock = FileLock::take(lock_file);
    if (!lock) continue;
    for (const fs::path& file : own) remove_quietly(file);
    remove_quietly(lock_file);
  }
}

void run_jobs(LoadedStudy& study, const std::vector<StudyJob>& jobs,
              const std::vector<std::string>& engine, const WorkOptions& options) {
  Json keys = Json::array();
  for (const StudyJob& job : jobs) keys.push_back(job.key);
  const fs::path folder = study.store.work() / config_checksum(keys);
  const fs::path file = folder / kStudyWorkFile;
  fs::create_directory(folder);
  write_study_work(file, study.plan, study.store, jobs);
  const UnitWork work = study_work(file, options.n_threads());
  const UnitOptions units = engine_options(folder, engine);
  try {
    units.finish(work, std::nullopt, options);
  } catch (const PartlyFailed&) {
    // The store says what.
  } catch (const Interrupted&) {
    absorb_work(study.store);
    throw Interrupted("study {}: stopped; the same command continues", study.file.name);
  } catch (const Error&) {
    absorb_work(study.store);
    throw;
  }
  absorb_work(study.store);
}

}  // namespace

UnitOptions engine_options(const fs::path& folder, const std::vector<std::string>& engine) {
  UnitOptions units;
  OptionSet set;
  units.declare(set);
  std::vector<std::string> words = {"--units", folder.string()};
  words.insert(words.end(), engine.begin(), engine.end());
  set.parse(words);
  units.check(std::nullopt);
  return units;
}

UnitWork study_work(const fs::path& file, int n_threads) {
  auto jobs = std::make_shared<const std::vector<StudyWorkJob>>(read_study_work(file));
  UnitWork work;
  work.command = "study work";
  work.words = {"study", "work", fs::absolute(file).string()};
  Json keys = Json::array();
  for (const StudyWorkJob& job : *jobs) keys.push_back(job.job.key);
  work.header = {{"kvscope_study_work", 1}, {"jobs", config_checksum(keys)}};
  work.n_units = jobs->size();
  work.cost = [jobs](std::size_t unit) {
    const StudyWorkJob& job = (*jobs)[unit];
    UnitCost cost;
    cost.inputs = {job.job.label};
    cost.predicted_seconds = job.seconds;
    return cost;
  };
  const fs::path scratch = fs::absolute(file).parent_path().parent_path().parent_path() / "scratch";
  work.run = [jobs, scratch, n_threads](std::size_t unit, const ProgressFn& progress,
                                        std::stop_token stop) {
    return Json{{kStudyLines, do_study_job((*jobs)[unit], scratch, n_threads, progress, stop)}};
  };
  seal(work);
  return work;
}

void run_study(LoadedStudy& study, const StudyChoice& choice,
               const std::vector<std::string>& engine, const WorkOptions& work) {
  std::set<std::string> tried;
  for (;;) {
    const std::vector<StudyJob> jobs =
        ready_jobs(study.plan, study.store, choice(tried), kMostJobs);
    if (jobs.empty()) break;
    for (const StudyJob& job : jobs) {
      for (const std::size_t item : job.items) tried.insert(study.plan.items[item].key);
    }
    run_jobs(study, jobs, engine, work);
  }
  remove_scratch(study.store.scratch());
}

}  // namespace kvscope::cli

#include "analysis/study/study_work.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "analysis/base/checked_lines.hpp"
#include "analysis/units/unit_file.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/new_file.hpp"
#include "core/base/read_files.hpp"

namespace kvscope {

namespace {

namespace fs = std::filesystem;

constexpr const char* kWorkMark = "kvscope_study_work";

std::vector<fs::path> work_folders(const StudyStore& store) {
  std::vector<fs::path> folders;
  std::error_code error;
  for (auto entry = fs::directory_iterator(store.work(), error);
       !error && entry != fs::directory_iterator(); entry.increment(error))
    folders.push_back(entry->path());
  return folders;
}

/// None for a run that ended before it began.
std::vector<StudyWorkJob> jobs_in(const fs::path& folder) {
  try {
    return read_study_work(folder / kStudyWorkFile);
  } catch (const Error&) {
    return {};
  }
}

/// The lines for the store in the units of a folder.
std::vector<Json> finished_lines(const fs::path& folder, const std::vector<StudyWorkJob>& jobs,
                                 const StudyStore& store) {
  std::vector<Json> lines;
  for (const fs::path& file : unit_files(folder)) {
    const auto unit = try_unit_file(file);
    if (!unit) continue;
    if (unit->line.is_object() && unit->line.contains(kStudyLines)) {
      for (const Json& line : unit->line.at(kStudyLines)) lines.push_back(line);
      continue;
    }
    const auto place = unit->about.value("unit", std::size_t{0});
    if (!unit->about.contains("failure") || place >= jobs.size()) continue;
    for (const StudyItem& item : jobs[place].items) {
      if (!store.knows(item.key))
        lines.push_back(failed_line(jobs[place], item, unit->about.at("failure")));
    }
  }
  return lines;
}

}  // namespace

void write_study_work(const fs::path& file, const StudyPlan& plan, const StudyStore& store,
                      std::span<const StudyJob> jobs) {
  const StudyForecast forecast(store);
  std::string lines = checked_line({{kWorkMark, 1}});
  for (const StudyJob& job : jobs) {
    Json items = Json::array();
    for (const std::size_t i : job.items) {
      const StudyItem& item = plan.items[i];
      items.push_back({item.key, item.what, item.method, item.budget});
    }
    const std::string& key = plan.items[job.items[0]].key;
    const double seconds = forecast.seconds(job);
    lines += checked_line(
        {{"key", job.key},
         {"kind", job.kind},
         {"method", job.method},
         {"label", job.label},
         {"words", job.words},
         {"recording", job.is_recording ? study_recording(store.folder(), key).string() : ""},
         {"seconds", std::isnan(seconds) ? 0.0 : seconds},
         {"items", std::move(items)}});
  }
  write_new_file(file, lines, /*overwrite=*/true);
}

std::vector<StudyWorkJob> read_study_work(const fs::path& file) {
  std::vector<StudyWorkJob> jobs;
  read_checked_lines(file, "study's work", [&](const Json& line, bool is_first) {
    if (is_first) {
      if (line.at(kWorkMark) != 1) throw ConfigError("the work of a newer kvscope");
      return;
    }
    StudyWorkJob& work = jobs.emplace_back();
    work.job.key = line.at("key");
    work.job.kind = line.at("kind");
    work.job.method = line.at("method");
    work.job.label = line.at("label");
    work.job.words = line.at("words").get<std::vector<std::string>>();
    work.recording = line.at("recording").get<std::string>();
    work.seconds = line.at("seconds");
    for (const Json& item : line.at("items")) {
      StudyItem& own = work.items.emplace_back();
      own.key = item.at(0);
      own.what = item.at(1);
      own.method = item.at(2);
      own.budget = item.at(3);
    }
  });
  return jobs;
}

Json failed_line(const StudyWorkJob& work, const StudyItem& item, const std::string& sentence) {
  return {{"key", item.key},
          {"kind", work.job.kind},
          {"method", work.job.method},
          {"failure", fmt::format("{}: {}", work.job.label, sentence)}};
}

std::size_t absorb_work(StudyStore& store) {
  const OwnFiles own;
  std::size_t n_items = 0;
  for (const fs::path& folder : work_folders(store)) {
    std::vector<Json> lines = finished_lines(folder, jobs_in(folder), store);
    // Of a run that was killed while it removed the folder.
    std::erase_if(lines, [&](const Json& line) { return store.knows(line.at("key")); });
    store.add(lines);
    n_items += lines.size();
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }
  return n_items;
}

StudyRunning look_at_work(StudyStore& store) {
  const OwnFiles own;
  StudyRunning running;
  for (const fs::path& folder : work_folders(store)) {
    try {
      const std::vector<StudyWorkJob> jobs = jobs_in(folder);
      for (const Json& line : finished_lines(folder, jobs, store)) store.note(line);
      for (const StudyWorkJob& work : jobs) {
        if (!FileLock::holder(store.scratch() / (work.job.key + ".lock")).empty())
          running.labels.push_back(work.job.label);
      }
      running.jobs_per_hour += 3600.0 * finished_per_second(unit_files(folder));
    } catch (const IoError&) {
      // Its run took the folder into the store meanwhile.
    }
  }
  return running;
}

}  // namespace kvscope

#include "analysis/cli/study_job.hpp"

#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <optional>
#include <thread>

#include "analysis/cli/papers_runner.hpp"
#include "analysis/options/exit_code.hpp"
#include "analysis/study/study_heads.hpp"
#include "analysis/study/study_table.hpp"
#include "analysis/units/unit_clock.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/new_file.hpp"
#include "core/base/read_files.hpp"
#include "core/base/whole_file.hpp"

namespace kvscope::cli {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostOfResult = std::size_t{1} << 30U;

/// The most memory of this process so far begins to be counted anew, where the system can do that.
void forget_peak_memory() {
  std::ofstream("/proc/self/clear_refs") << "5";
}

double peak_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string name; status >> name; status.ignore(1 << 20, '\n')) {
    double kib = 0.0;
    if (name == "VmHWM:" && status >> kib) return 1024.0 * kib;
  }
  return 0.0;
}

FileLock wait_for(const fs::path& file, const std::stop_token& stop) {
  for (;;) {
    if (auto lock = FileLock::take(file)) return std::move(*lock);
    if (stop.stop_requested()) throw Interrupted("stopped while another worker is at the job");
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

class Job {
 public:
  Job(const StudyWorkJob& work, fs::path scratch, int n_threads, const ProgressFn& progress,
      std::stop_token stop)
      : work_(work),
        scratch_(std::move(scratch)),
        threads_(std::to_string(n_threads)),
        progress_(progress),
        stop_(std::move(stop)) {}

  Json lines() {
    const FileLock lock = wait_for(scratch_ / (work_.job.key + ".lock"), stop_);
    forget_peak_memory();
    Json lines = Json::array();
    if (!work_.recording.empty()) {
      record(lines);
    } else {
      std::vector<const StudyItem*> all;
      for (const StudyItem& item : work_.items) all.push_back(&item);
      const std::string sentence = answer(all, work_.job.key, lines);
      for (const StudyItem* item : all) {
        if (sentence.empty()) break;
        const std::string own = all.size() == 1 ? sentence : answer({item}, item->key, lines);
        if (!own.empty()) lines.push_back(failed_line(work_, *item, own));
      }
    }
    return lines;
  }

 private:
  /// Empty if the command did what it should, else why it did not.
  std::string run(const Words& words) {
    outcome_ = run_inside(words, progress_, stop_);
    if (stop_.stop_requested()) throw Interrupted("stopped at {}", work_.job.label);
    if (outcome_.code == kOk) return "";
    constexpr std::string_view kOurs = "kvscope: ";
    const std::string& said = outcome_.last_note;
    if (said.empty()) return fmt::format("it ended with code {}", outcome_.code);
    return said.starts_with(kOurs) ? said.substr(kOurs.size()) : said;
  }

  void record(Json& lines) {
    const StudyItem& item = work_.items.at(0);
    const double begin = processor_seconds();
    Words words = work_.job.words;
    words.insert(words.end(),
                 {"--out", work_.recording.string(), "--overwrite", "--threads", threads_});
    const std::string sentence = run(words);
    if (!sentence.empty()) {
      lines.push_back(failed_line(work_, item, sentence));
      return;
    }
    Json line = line_of(item, processor_seconds() - begin);
    std::error_code error;
    line["bytes"] = static_cast<double>(fs::file_size(work_.recording, error));
    lines.push_back(std::move(line));
  }

  /// The command over these items' budgets; its lines, or why there are none.
  std::string answer(const std::vector<const StudyItem*>& items, const std::string& name,
                     Json& lines) {
    const fs::path out = scratch_ / (name + ".json");
    const fs::path journal = out.string() + ".journal";
    Words words = work_.job.words;
    for (const StudyItem* item : items) {
      if (!item->budget.empty()) words.insert(words.end(), {"--budget", item->budget});
    }
    words.insert(words.end(), {"--out", out.string(), "--threads", threads_});
    const double begin = processor_seconds();
    std::string sentence;
    remove_quietly(out);
    const bool goes_on = fs::exists(journal);
    if (goes_on) {
      Words resumed = words;
      resumed.emplace_back("--resume");
      sentence = run(resumed);
    }
    if (!goes_on || !sentence.empty()) {  // or its journal is damaged
      words.emplace_back("--overwrite");
      sentence = run(words);
    }
    if (sentence.empty()) keep(items, out, processor_seconds() - begin, lines);
    remove_quietly(out);
    remove_quietly(journal);
    return sentence;
  }

  void keep(const std::vector<const StudyItem*>& items, const fs::path& out, double seconds,
            Json& lines) const {
    const OwnFiles own;
    const Json result = parse_ordered_json(read_regular_file(out, kMostOfResult), out.string());
    for (const StudyItem* item : items) {
      Json line = line_of(*item, seconds / static_cast<double>(items.size()));
      line["table"] = rows_of_item(result.at("rows"), *item);
      if (Json heads = heads_of_item(result.at("rows"), *item); !heads.is_null())
        line["heads"] = std::move(heads);
      const Json& skipped = result.at("skipped");
      if (line["table"] == "" && !skipped.empty()) line["remark"] = skipped[0];
      lines.push_back(std::move(line));
    }
  }

  Json line_of(const StudyItem& item, double seconds) const {
    return {{"key", item.key},
            {"kind", work_.job.kind},
            {"method", work_.job.method},
            {"what", parse_ordered_json(item.what, "a study's item")},
            {"seconds", seconds},
            {"memory", peak_memory()}};
  }

  const StudyWorkJob& work_;
  fs::path scratch_;
  std::string threads_;
  const ProgressFn& progress_;
  std::stop_token stop_;
  CommandOutcome outcome_;
};

}  // namespace

Json do_study_job(const StudyWorkJob& work, const fs::path& scratch, int n_threads,
                  const ProgressFn& progress, std::stop_token stop) {
  return Job(work, scratch, n_threads, progress, std::move(stop)).lines();
}

}  // namespace kvscope::cli

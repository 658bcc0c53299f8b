#include "analysis/cli/runs/study_job.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "analysis/cli/runs/run_inside.hpp"
#include "analysis/options/exit_code.hpp"
#include "analysis/options/options.hpp"
#include "analysis/runs/store.hpp"
#include "analysis/study/study_heads.hpp"
#include "analysis/study/study_table.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/lists.hpp"
#include "core/base/new_file.hpp"
#include "core/base/read_files.hpp"
#include "core/base/whole_file.hpp"

namespace kvscope::cli {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostOfResult = std::size_t{1} << 30U;

/// Of this process so far, all threads together.
double processor_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

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

class Job {
 public:
  Job(const StudyJobRun& run, const ProgressFn& progress, std::stop_token stop)
      : run_(run),
        threads_(std::to_string(run.n_threads)),
        progress_(progress),
        stop_(std::move(stop)) {}

  std::vector<Json> lines() {
    forget_peak_memory();
    if (!run_.recording.empty()) {
      record();
      return std::move(lines_);
    }
    if (run_.job.words.front() == "analyze") {
      analyze();
      return std::move(lines_);
    }
    const std::string sentence = answer(run_.items, run_.scratch.string());
    for (const StudyItem* item : run_.items) {
      if (sentence.empty()) break;
      const std::string own =
          run_.items.size() == 1
              ? sentence
              : answer({item}, fmt::format("{}.{}", run_.scratch.string(), question_of(item->key)));
      if (!own.empty()) lines_.push_back(failed_line(run_.job, *item, own));
    }
    return std::move(lines_);
  }

 private:
  /// Empty if the command did what it should, else why it did not.
  std::string run(const Words& words) {
    outcome_ = run_inside(words, progress_, stop_);
    if (stop_.stop_requested()) throw Interrupted("stopped at {}", run_.job.label);
    return outcome_.code == kOk ? "" : outcome_.sentence();
  }

  void record() {
    const StudyItem& item = *run_.items.at(0);
    const double begin = processor_seconds();
    Words words = run_.job.words;
    words.insert(words.end(),
                 {"--out", run_.recording.string(), "--overwrite", "--threads", threads_});
    const std::string sentence = run(words);
    if (!sentence.empty()) {
      lines_.push_back(failed_line(run_.job, item, sentence));
      return;
    }
    Json line = line_of(item, processor_seconds() - begin);
    std::error_code error;
    line["bytes"] = static_cast<double>(fs::file_size(run_.recording, error));
    lines_.push_back(std::move(line));
  }

  void analyze() {
    const StudyItem& item = *run_.items.at(0);
    const double begin = processor_seconds();
    Words words = run_.job.words;
    words.insert(words.end(), {"--json", "--threads", threads_});
    std::string sentence = run(words);
    if (outcome_.code == kCheckFailed) sentence.clear();  // a bound was violated, which it says
    Json line = line_of(item, processor_seconds() - begin);
    if (sentence.empty()) {
      const Json result = parse_ordered_json(outcome_.printed, run_.job.label);
      Json rows = run_.job.picks.empty() ? result.value("rows", Json::array()) : Json::array();
      Json picked = Json::object();
      for (const std::string& pick : run_.job.picks) {
        const Json::json_pointer at("/" +
                                    fmt::format("{}", fmt::join(split_words(pick, '.'), "/")));
        if (!result.contains(at) || !result.at(at).is_primitive())
          sentence = fmt::format("its JSON has no number {}", quote(pick));
        else
          picked[pick.substr(pick.rfind('.') + 1)] = result.at(at);
      }
      if (!picked.empty()) rows.push_back(picked);
      line["table"] = rows_of_item(rows, item);
    }
    lines_.push_back(sentence.empty() ? std::move(line) : failed_line(run_.job, item, sentence));
  }

  /// The command over these items' budgets; its lines, or why there are none.
  std::string answer(const std::vector<const StudyItem*>& items, const std::string& stem) {
    const fs::path out = stem + ".json";
    const fs::path store = out.string() + ".store";
    Words words = run_.job.words;
    for (const StudyItem* item : items) {
      if (!item->budget.empty()) words.insert(words.end(), {"--budget", item->budget});
    }
    words.insert(words.end(), {"--out", out.string(), "--threads", threads_});
    const double begin = processor_seconds();
    std::string sentence;
    remove_quietly(out);
    const bool goes_on = is_store(store);
    if (goes_on) {
      Words resumed = words;
      resumed.emplace_back("--resume");
      sentence = run(resumed);
    }
    if (!goes_on || !sentence.empty()) {  // or what is there is damaged
      words.emplace_back("--overwrite");
      sentence = run(words);
    }
    if (sentence.empty()) keep(items, out, processor_seconds() - begin);
    remove_quietly(out);
    remove_store(store);
    return sentence;
  }

  void keep(const std::vector<const StudyItem*>& items, const fs::path& out, double seconds) {
    const OwnFiles own;
    const Json result = parse_ordered_json(read_regular_file(out, kMostOfResult), out.string());
    for (const StudyItem* item : items) {
      Json line = line_of(*item, seconds / static_cast<double>(items.size()));
      line["table"] = rows_of_item(result.at("rows"), *item);
      if (Json heads = heads_of_item(result.at("rows"), *item); !heads.is_null())
        line["heads"] = std::move(heads);
      const Json& skipped = result.at("skipped");
      if (line["table"] == "" && !skipped.empty()) line["remark"] = skipped[0];
      lines_.push_back(std::move(line));
    }
  }

  Json line_of(const StudyItem& item, double seconds) const {
    return {{"key", item.key},           {"kind", run_.job.kind},
            {"method", run_.job.method}, {"what", parse_ordered_json(item.what, "a study's item")},
            {"seconds", seconds},        {"memory", peak_memory()}};
  }

  const StudyJobRun& run_;
  std::string threads_;
  const ProgressFn& progress_;
  std::stop_token stop_;
  std::vector<Json> lines_;
  CommandOutcome outcome_;
};

}  // namespace

std::vector<Json> do_study_job(const StudyJobRun& run, const ProgressFn& progress,
                               std::stop_token stop) {
  return Job(run, progress, std::move(stop)).lines();
}

Json failed_line(const StudyJob& job, const StudyItem& item, const std::string& sentence) {
  return {{"key", item.key},
          {"kind", job.kind},
          {"method", job.method},
          {"failure", fmt::format("{}: {}", job.label, sentence)}};
}

}  // namespace kvscope::cli

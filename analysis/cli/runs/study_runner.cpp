// kvscope study run: does what of a study is not known yet.
#include "analysis/cli/runs/study_runner.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>

#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/runs/run_inside.hpp"
#include "analysis/options/exit_code.hpp"
#include "analysis/options/options.hpp"
#include "analysis/runs/leases.hpp"
#include "analysis/runs/store.hpp"
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

struct StudyJobRun {
  const StudyJob& job;
  std::vector<const StudyItem*> items;  // that are asked for
  fs::path recording;                   // what it writes; empty of others
  /// Where it keeps what it is at, which a killed worker's successor goes on with; of this worker
  /// alone while it runs.
  fs::path scratch;
  int n_threads = 1;
};

/// The store's line for an item that failed.
Json failed_line(const StudyJob& job, const StudyItem& item, const std::string& sentence) {
  return {{"key", item.key},
          {"kind", job.kind},
          {"method", job.method},
          {"failure", fmt::format("{}: {}", job.label, sentence)}};
}

/// One job of a study in this process: a command line, its result as a line of the store for each
/// item. Where the command refuses several budgets together, each is tried alone; an item that
/// cannot be done has a line that says why. Throws Interrupted on a stop.
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
    if (outcome_.is_write_refused) throw WriteRefused(outcome_.sentence());
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
          picked[column_of_pick(pick)] = result.at(at);
      }
      if (!picked.empty()) rows.push_back(picked);
      line["rows"] = rows_of_item(rows, item);
      if (run_.job.picks.empty() && result.contains("totals")) line["totals"] = result["totals"];
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
    words.insert(words.end(), {"--out", out.string(), "--resume", "--threads", threads_});
    const double begin = processor_seconds();
    std::string sentence;
    remove_quietly(out);
    sentence = run(words);
    if (!sentence.empty() && is_store(store)) {  // which may be damaged
      remove_store(store);
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
      line["rows"] = rows_of_item(result.at("rows"), *item);
      if (Json heads = heads_of_item(result.at("rows"), *item); !heads.is_null())
        line["heads"] = std::move(heads);
      const Json& skipped = result.at("skipped");
      if (line["rows"].empty() && !skipped.empty()) line["remark"] = skipped[0];
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
  work.run = [&study, jobs, n_threads](std::span<const std::size_t> items, const Lease* lease,
                                       const ProgressFn& progress, std::stop_token stop) {
    const StudyJob& job = (*jobs)[items.front()];
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
    return Job(run, progress, std::move(stop)).lines();
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
  for (const fs::path& file : sorted_entries(store.scratch())) {
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

namespace {

class StudyRunCommand final : public Command {
 public:
  CommandCard card() const override {
    return {"study run",
            "compute what of a study is not known yet",
            "Records what the tasks replay, then does every item that the store does not know: one "
            "that any study in the same store asked before is not computed again. Items that fail "
            "stop no other; they are named, the code is 4, and they are tried again with "
            "--retry-failed. After Ctrl-C or a kill the same command goes on. Several runs and "
            "--worker processes may share a store: each item is given to one of them.",
            {{"kvscope study run small.toml", "in this process"},
             {"kvscope study run small.toml --engine local --workers 4",
              "in four processes; slurm, mpi and ray as in kvscope sweep"}}};
  }
  void declare(OptionSet& options) override {
    options.positional("FILE", "the study, a TOML file (analysis/study.md)", file_,
                       /*required=*/true);
    workers_.declare(options);
    work_.declare(options);
    declare_json(options, json_);
  }
  int run(const OptionSet& given, const std::string&) override {
    workers_.check();
    LoadedStudy study = load_study(file_);
    if (!workers_.is_worker()) note_left_out(study.plan);
    const std::vector<bool> to_do = study_to_do(study.plan, study.store, workers_.retries_failed());
    if (workers_.retries_failed()) forget_failed(study, to_do);
    const std::size_t n_before = study.store.n_known();
    run_study(study, to_do, workers_, given.words(name(), kOptionsOfNoNumber), work_);
    study.store.refresh();
    return tell(study, study.store.n_known() - n_before);
  }

 private:
  /// Items to do that failed, and recordings whose damage was the reason.
  static void forget_failed(LoadedStudy& study, const std::vector<bool>& to_do) {
    for (std::size_t i = 0; i < to_do.size(); ++i) {
      const std::string& key = study.plan.items[i].key;
      if (to_do[i] && study.store.find(key) != nullptr) study.store.forget(key);
    }
  }

  int tell(const LoadedStudy& study, std::size_t n_new) const {
    constexpr std::size_t kTold = 20;
    const auto counts = count_study(study.plan, study.store);
    const auto n_failed = counts.at("failed").get<std::size_t>();
    if (json_) {
      Json json = {{"kind", "study-run"},
                   {"study", study.file.name},
                   {"store", study.store.folder().string()},
                   {"new", n_new}};
      json.update(counts);
      print_json(json);
    } else {
      const auto n_items = counts.at("items").get<std::size_t>();
      const auto n_known = counts.at("known").get<std::size_t>();
      print("{}{}: {} items, {} known ({} new in the store), {} failed\n", study.file.name,
            n_known == n_items ? " is complete" : "", n_items, n_known, n_new, n_failed);
    }
    std::size_t n_told = 0;
    for (const StudyItem& item : study.plan.items) {
      const std::string sentence = failure_of(study.plan, study.store, item);
      if (!sentence.empty() && n_told++ < kTold)
        note("kvscope: {} {} failed: {}", item.method, item.budget, sentence);
    }
    if (n_failed == 0) return kOk;
    throw PartlyFailed(
        "study run: {} of {} items failed; kvscope study status {} --json names all, "
        "--retry-failed tries them again",
        n_failed, counts.at("items").get<std::size_t>(), file_.string());
  }

  fs::path file_;
  WorkerOptions workers_;
  bool json_ = false;
  WorkOptions work_;
};

}  // namespace

KVSCOPE_COMMAND(530, StudyRunCommand)

}  // namespace kvscope::cli

#include "analysis/cli/unit_options.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "analysis/cli/child_process.hpp"
#include "analysis/cli/engine.hpp"
#include "analysis/cli/host.hpp"
#include "analysis/cli/output.hpp"
#include "analysis/cli/unit_list.hpp"
#include "analysis/cli/unit_source.hpp"
#include "analysis/units/unit_file.hpp"
#include "core/base/error.hpp"
#include "core/base/new_file.hpp"
#include "core/base/stopwatch.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

namespace {

constexpr int kMostWorkers = 100'000;

/// Workers hear their units on standard input, so no other input may be read there.
void require_named_inputs(const UnitWork& work, const char* option) {
  if (std::ranges::find(work.words, "-") == work.words.end()) return;
  throw UsageError("{}: standard input cannot be handed to workers: expected a file in place of -",
                   option);
}

/// The list of units that workers share, gone when they have ended; with it the folder, if nothing
/// was done at all.
class SharedList {
 public:
  SharedList(fs::path folder, const std::vector<std::string>& ids)
      : folder_(std::move(folder)),
        file_(folder_ / fmt::format("{}{}", kUnitListStem, ::getpid())) {
    std::string lines;
    for (const std::string& id : ids) lines += id + "\n";
    write_new_file(file_, lines, /*overwrite=*/true);
    std::error_code error;
    fs::remove_all(leases_of(file_), error);
    if (!fs::create_directory(leases_of(file_), error))
      throw IoError("cannot make the folder {}: {}", leases_of(file_).string(), error.message());
  }
  SharedList(const SharedList&) = delete;
  SharedList& operator=(const SharedList&) = delete;
  ~SharedList() {
    remove_quietly(file_);
    std::error_code ignored;
    fs::remove_all(leases_of(file_), ignored);
    fs::remove(folder_, ignored);  // refused unless it is empty
  }
  const fs::path& file() const { return file_; }

 private:
  fs::path folder_;
  fs::path file_;
};

}  // namespace

std::string failed_text(const UnitFolder& units) {
  constexpr std::size_t kNamed = 5;
  std::vector<std::string> ids;
  for (const FailedUnit& failed : units.failed) {
    if (ids.size() < kNamed) ids.push_back(failed.id);
  }
  return units.failed.empty()
             ? ""
             : fmt::format("{} of {} units failed ({}{}), {} are done in {}", units.failed.size(),
                           units.n_units, fmt::join(ids, ", "),
                           ids.size() < units.failed.size() ? ", ..." : "", units.done.size(),
                           units.folder.string());
}

void note_failed(const UnitFolder& units) {
  constexpr std::size_t kTold = 20;
  for (std::size_t i = 0; i < std::min(kTold, units.failed.size()); ++i)
    note("kvscope: unit {} failed: {}", units.failed[i].id, units.failed[i].sentence);
  if (units.failed.size() > kTold)
    note("kvscope: and {} more failed; kvscope info {} --json names all",
         units.failed.size() - kTold, units.folder.string());
}

std::vector<std::string> merging_words(const UnitFolder& units) {
  const auto refuse = [&](const std::string& why) {
    throw FormatError("{}: its command is none that makes units: {}", units.folder.string(), why);
  };
  const std::string first = units.words.empty() ? "" : units.words.front();
  if (first != "simulate" && first != "analyze" && first != "cost")
    refuse("found \"" + first + "\"");
  for (const std::string& word : units.words) {
    const std::string name = word.substr(0, word.find('='));
    if (name == "--") break;  // names of files follow
    if (name.starts_with("-o") || name == "-h") refuse("found " + word);
    for (const std::string_view outside : kOptionsOfNoNumber) {
      if (name == "--" + std::string(outside)) refuse("found " + word);
    }
  }
  return units.words;
}

void UnitOptions::declare(OptionSet& options) {
  options.flag("list-units", "print the units of this work, and compute none", list_);
  options.flag("probe",
               "with --list-units: do two units to predict the seconds of all, which are else "
               "unknown",
               probe_);
  options.add(
      "unit", "ID[,ID]",
      "compute only these units, each into a file of the folder --out; @FILE: ids of a file, of "
      "which a rank of mpirun or a task of an array job takes its share; -: ids from standard "
      "input",
      unit_);
  options
      .add("units", "DIR",
           "keep finished units in this folder and compute what is missing [OUT.units, which goes "
           "at the end]",
           folder_)
      .kind = ValueKind::folder;
  options.add("engine", "NAME", "who does the units: local (processes here), mpi, slurm or ray",
              engine_);
  options.add("workers", "N", "processes of the engine [all cores]", workers_, in(1, kMostWorkers));
  options.flag("retry-failed", "with --units or --engine: try units again that failed before",
               retry_failed_);
  options.flag("without-failed",
               "with --units or --engine: make the result although units failed; their rows are "
               "empty, and the code is 4",
               without_failed_);
  options.need({"workers"}, {"engine"});
  options.need({"retry-failed", "without-failed"}, {"units", "engine"});
  options.need({"probe"}, {"list-units"});
  options.exclude({"list-units", "unit"});
  options.exclude_each({"list-units", "unit"}, {"engine", "units"});
  options.exclude({"list-units", "out"}, ": a list is printed");
  options.need({"unit"}, {"out"}, " DIR, the folder of finished units");
  options.need({"engine"}, {"out", "units"}, ", where finished units are kept");
}

void UnitOptions::check(const std::optional<fs::path>& out) const {
  if (engine_) find_engine(*engine_);
  if (unit_) {
    std::error_code error;
    if (fs::exists(*out, error) && !fs::is_directory(*out, error))
      throw UsageError("--out: expected a folder for --unit, found the file {}", out->string());
  }
  if (engine_ && host() != nullptr)
    throw UsageError(
        "--engine starts processes of the program kvscope, which Python is not: run "
        "the command in a shell");
}

void UnitOptions::seal(UnitWork& work, const OptionSet& given, const std::string& name) const {
  work.command = name;
  work.words = given.words(name, kOptionsOfNoNumber);
  kvscope::seal(work);
}

int UnitOptions::run_alone(const UnitWork& work, const std::optional<fs::path>& out, bool json,
                           const WorkOptions& options) const {
  if (list_) {
    const double process = memory_of_process();
    UnitClock clock;
    if (probe_) {
      const Running run(options.progress);
      clock = UnitClock::measured(work, run.progress, run.stop);
    }
    json ? print_json(unit_list_json(work, clock, process))
         : print(unit_list_text(work, clock, process));
    return kOk;
  }
  const Running run(options.progress);
  std::size_t n_failed = 0;
  const auto do_one = [&](std::size_t unit) {
    const std::string id = unit_id(work.hash, unit);
    const std::string sentence = do_unit_file(work, unit, *out, run.progress, run.stop);
    print_data(id + (sentence.empty() ? "\n" : std::string(kSaysFailed) + "\n"));
    if (sentence.empty()) return;
    ++n_failed;
    note("kvscope: unit {} failed: {}", id, sentence);
  };
  if (*unit_ == "-") {
    require_named_inputs(work, "--unit -");
    print_data(std::string(kSaysReady) + "\n");
    InputLines lines(run.stop);
    while (const auto id = lines.next()) do_one(unit_of_id(work, *id));
    return n_failed == 0 ? kOk : kPartlyFailed;
  }
  UnitLeases leases = listed_units(*unit_, *out);
  for (const std::string& id : leases.ids()) unit_of_id(work, id);  // before the first is done
  while (const auto id = leases.next(run.stop)) {
    const Stopwatch watch;
    do_one(unit_of_id(work, *id));
    leases.finished(*id, watch.seconds());
  }
  // mpirun ends all ranks when one ends with another code; the folder says what failed.
  return n_failed == 0 || rank_of_many().is_mpi ? kOk : kPartlyFailed;
}

UnitFolder UnitOptions::finish(const UnitWork& work, const std::optional<fs::path>& out,
                               const WorkOptions& options) const {
  const fs::path folder = folder_ ? *folder_ : fs::path(out->string() + ".units");
  require_no_other_units(work, folder);
  remove_old_temporaries(folder, work.hash + "-");
  std::vector<std::size_t> lacking;
  for (std::size_t u = 0; u < work.n_units; ++u) {
    const std::string id = unit_id(work.hash, u);
    if (has_unit(folder, id)) continue;
    if (retry_failed_) remove_quietly(failed_file(folder, id));
    if (retry_failed_ || !has_failed(folder, id)) lacking.push_back(u);
  }
  if (!lacking.empty()) {
    std::error_code error;
    fs::create_directory(folder, error);
    if (!fs::is_directory(folder))
      throw IoError("cannot make the folder {}: {}", folder.string(), error.message());
  }
  if (engine_ && !lacking.empty()) {
    std::vector<std::string> todo;
    for (const std::size_t u : lacking) todo.push_back(unit_id(work.hash, u));
    run_engine(work, folder, std::move(todo), options);
  } else {
    const Running run(options.progress);
    for (const std::size_t u : lacking) do_unit_file(work, u, folder, run.progress, run.stop);
  }
  UnitFolder units = read_unit_folder(folder);
  if (!units.failed.empty()) refuse_failed(work, units);
  return units;
}

void UnitOptions::refuse_failed(const UnitWork& work, const UnitFolder& units) const {
  note_failed(units);
  if (without_failed_ && work.may_lack) return;
  throw PartlyFailed(
      "{}: {}; {}", work.command, failed_text(units),
      without_failed_ ? "a result without them cannot be made: leave their layers out by --layers"
      : work.may_lack
          ? "--retry-failed tries them again, --without-failed makes the result without them"
          : "--retry-failed tries them again");
}

void UnitOptions::run_engine(const UnitWork& work, const fs::path& folder,
                             std::vector<std::string> todo, const WorkOptions& options) const {
  require_named_inputs(work, "--engine");
  const Engine engine = find_engine(*engine_);
  EngineJob job;
  // Where cores outnumber units, workers have several threads.
  job.workers = static_cast<int>(
      std::min(static_cast<std::size_t>(workers_.value_or(available_cores())), todo.size()));
  job.command.push_back(this_program());
  job.command.insert(job.command.end(), work.words.begin(), work.words.end());
  // Only this machine's cores can be shared out here.
  const int share = *engine_ == "local" ? std::max(1, available_cores() / job.workers) : 1;
  job.threads = options.threads ? options.n_threads() : share;
  insert_options(job.command, {"--threads", std::to_string(job.threads)});
  job.folder = fs::absolute(folder);
  const SharedList list(job.folder, todo);
  job.list = list.file();
  job.todo = std::move(todo);
  job.give_up = [&](const std::string& id, const std::string& sentence) {
    give_up_unit(work, unit_of_id(work, id), job.folder, sentence);
  };
  const Running run(options.progress);
  job.progress = run.progress;
  job.stop = run.stop;
  const std::string failure = engine(job);
  const auto n_missing = std::ranges::count_if(job.todo, [&](const std::string& id) {
    return !has_unit(job.folder, id) && !has_failed(job.folder, id);
  });
  if (n_missing == 0) return;
  const std::string state =
      fmt::format("{} of {} units are missing from {}; the same command continues", n_missing,
                  work.n_units, folder.string());
  if (run.stop.stop_requested()) throw Interrupted("{}: stopped; {}", *engine_, state);
  throw IoError("{}: {}; {}", *engine_,
                failure.empty() ? "the workers ended before their work did" : failure, state);
}

int UnitOptions::clean_up(const UnitFolder& units) const {
  if (!units.failed.empty()) return kPartlyFailed;
  if (!folder_) remove_units(units);
  return kOk;
}

}  // namespace kvscope::cli

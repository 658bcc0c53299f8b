#include "analysis/cli/runs/run_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "analysis/base/read_table.hpp"
#include "analysis/cli/frame/host.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/frame/save_text.hpp"
#include "analysis/cli/runs/engine.hpp"
#include "analysis/options/exit_code.hpp"
#include "core/base/error.hpp"
#include "core/base/file_kind.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/lists.hpp"
#include "core/base/new_file.hpp"
#include "core/base/read_files.hpp"
#include "core/base/whole_file.hpp"
#include "traces/result_file.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

namespace {

constexpr int kMostWorkers = 100'000;

/// The file of the program that runs here, or in Python of one that runs the same commands.
std::string this_program() {
  std::error_code error;
  const fs::path file = fs::read_symlink("/proc/self/exe", error);
  if (error) throw IoError("cannot find this program's file: {}", error.message());
  // Python, which has the commands as a module, names a program that runs them.
  if (const char* named = std::getenv("KVSCOPE_COMMAND"); named && file.filename() != "kvscope")
    return named;
  return file.string();
}

/// Items that are not done.
std::vector<std::size_t> items_left(const Work& work, const Store& store) {
  std::vector<std::size_t> items;
  for (std::size_t i = 0; i < work.keys.size(); ++i) {
    if (state_of(work, i, store) != ItemState::done) items.push_back(i);
  }
  return items;
}

/// What a result says of what made it, as "kind", "version", "command_line" and so on; of a CSV,
/// its "config_hash" and the text as "csv". Null if it is damaged, or no result.
Json said_in(const fs::path& file) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 30;
  const FileKind kind = kind_of_name(file);
  try {
    if (kind == FileKind::result) {
      const ResultFile result = ResultFile::open(file);
      const ResultInfo& info = result.info();
      const Json& summary = result.summary();
      return {
          {"kind", info.kind},
          {"version", info.writer},
          {"command_line", info.command_line},
          {"config_hash", summary.value("sweep_hash", summary.value("simulation_hash", Json()))},
          {"trace_hashes", info.trace_hashes},
          {"artifacts", info.config.value("artifacts", Json())},
          {"skipped", summary.value("skipped", Json())}};
    }
    const std::string text = read_regular_file(file, kMostBytes);
    if (kind != FileKind::csv) return parse_ordered_json(text, file.string());
    // its last column, in every row
    const std::size_t end = text.find_last_not_of("\r\n");
    const std::size_t begin = text.find_last_of(",\n", end);
    if (begin == text.npos) return nullptr;
    return {{"config_hash", text.substr(begin + 1, end - begin)}, {"csv", text}};
  } catch (const FormatError&) {
    return nullptr;
  } catch (const nlohmann::json::exception&) {  // a summary that is no object
    return nullptr;
  }
}

/// Whether each row of a result in CSV or JSON (said_in) has numbers where that of an empty one has
/// none; nothing if it has other columns or rows: somebody changed it, or another version wrote it.
std::optional<bool> has_all_numbers(const Json& there, const std::string& empty_csv) try {
  constexpr std::string_view kPlace[] = {"trace", "model",  "selector", "phase", "layer",
                                         "kind",  "q_head", "length",   "depth"};
  const Table found = there.contains("csv") ? table_from_csv(there["csv"].get<std::string>(), "")
                                            : table_from_json(there, "");
  const Table empty = table_from_csv(empty_csv, "");
  if (found.n_rows() != empty.n_rows()) return std::nullopt;
  std::vector<bool> has_numbers(found.n_rows());
  for (const TableColumn& column : empty.columns()) {
    const TableColumn* const own = found.find(column.name);
    if (own == nullptr) return std::nullopt;
    const bool is_place = std::ranges::find(kPlace, column.name) != std::end(kPlace);
    for (std::size_t row = 0; row < found.n_rows(); ++row) {
      if (own->cell(row) == column.cell(row)) continue;
      if (is_place) return std::nullopt;
      has_numbers[row] = true;
    }
  }
  return std::ranges::find(has_numbers, false) == has_numbers.end();
} catch (const FormatError&) {
  return std::nullopt;
}

void note_failed(const std::vector<FailedItem>& failed) {
  constexpr std::size_t kTold = 20;
  for (std::size_t i = 0; i < std::min(kTold, failed.size()); ++i)
    note("kvscope: item {} failed: {}", failed[i].key, failed[i].sentence);
  if (failed.size() > kTold)
    note("kvscope: and {} more failed; kvscope info STORE --json names all", failed.size() - kTold);
}

}  // namespace

void WorkerOptions::declare(OptionSet& options) {
  options.add("engine", "NAME",
              "who does the work: local (processes here), mpi, slurm or ray [this process]",
              engine_);
  options.add("workers", "N", "processes of the engine [all cores]", workers_, in(1, kMostWorkers));
  options.flag("worker", "take items of the store until none is left, and write no result",
               worker_);
  options.flag("retry-failed", "try items again that failed before", retry_failed_);
  options.need({"workers"}, {"engine"});
  options.exclude_each({"worker"}, {"engine", "retry-failed"});
}

void WorkerOptions::check() const {
  if (!engine_) return;
  find_engine(*engine_);
  if (host() != nullptr)
    throw UsageError(
        "--engine starts processes of the program kvscope, which Python is not: run "
        "the command in a shell");
}

void WorkerOptions::run(const Work& work, Store& store, std::vector<std::string> words,
                        OnFailure on_failure, const WorkOptions& options) const {
  if (!worker_ && !store.folder().empty()) Leases(store.leases(), store.worker()).clear_dead();
  if (engine_) {
    run_engine(work, store, std::move(words), options);
    return;
  }
  const Running run(options.progress);
  run_items(work, store, on_failure, run.progress, run.stop);
}

void WorkerOptions::run_engine(const Work& work, Store& store, std::vector<std::string> words,
                               const WorkOptions& options) const {
  if (std::ranges::find(words, "-") != words.end())
    throw UsageError(
        "--engine: standard input cannot be handed to workers: expected a file in place of -");
  const Running run(options.progress);
  std::vector<std::size_t> left = items_left(work, store);
  const std::size_t n_before = left.size();
  if (n_before == 0) return;
  std::set<std::size_t> groups;
  for (const std::size_t i : left) groups.insert(work.groups.empty() ? i : work.groups[i]);
  EngineJob job;
  // Where cores outnumber what can be taken, workers have several threads.
  job.workers = std::min(workers_.value_or(available_cores()), static_cast<int>(groups.size()));
  // Only this machine's cores can be shared out here.
  const int share = *engine_ == "local" ? std::max(1, available_cores() / job.workers) : 1;
  job.threads = options.threads ? options.n_threads() : share;
  job.words.push_back(this_program());
  job.words.insert(job.words.end(), words.begin(), words.end());
  insert_options(job.words, {"--worker", "--threads", std::to_string(job.threads)});
  job.folder = fs::absolute(store.folder());
  store.begin();
  job.stop = run.stop;
  job.n_left = [&] {
    store.refresh();
    std::erase_if(left, [&](std::size_t i) { return state_of(work, i, store) == ItemState::done; });
    if (run.progress)
      run.progress({work.command, static_cast<std::int64_t>(n_before - left.size()),
                    static_cast<std::int64_t>(n_before), "items"});
    return left.size();
  };
  const std::string failure = find_engine(*engine_)(job);
  const std::size_t n_left = job.n_left();
  if (n_left == 0) return;
  const std::string state = fmt::format("{} of {} items are missing from {}", n_left,
                                        work.keys.size(), store.folder().string());
  if (run.stop.stop_requested()) throw Interrupted("{}: stopped; {}", *engine_, state);
  throw IoError("{}: {}; {}", *engine_,
                failure.empty() ? "the workers ended before their work did" : failure, state);
}

void RunJob::declare_table(OptionSet& options, std::string_view h5_has, std::string_view name) {
  options
      .add("out", "FILE", fmt::format("write the table as .csv, .json or .h5 (with {})", h5_has),
           out)
      .short_name = 'o';
  options.flag("resume", fmt::format("go on from what an interrupted {} has finished", name),
               resume);
  options.flag("overwrite", "replace existing files and start over", overwrite);
  options.exclude({"resume", "overwrite"});
  options.need({"resume"}, {"out"});
  may_resume_ = false;
}

void RunJob::declare_work(OptionSet& options) {
  options
      .add("store", "DIR",
           fmt::format("keep what is finished in this folder, and take from it what is known [{}]",
                       may_resume_ ? "nothing is kept, but with --engine in OUT.store"
                                   : "OUT.store, which goes at the end"),
           store_dir_)
      .kind = ValueKind::folder;
  workers_.declare(options);
  options.flag("without-failed",
               "of items in a store: make the result although some failed; their rows are empty, "
               "and the code is 4",
               without_failed_);
  Words keepers = {"store", "engine"};
  if (!may_resume_) keepers.emplace_back("resume");
  options.need({"retry-failed", "without-failed"}, keepers);
  options.need({"engine"}, {"out", "store"}, ", where finished items are kept");
  options.need({"worker"}, {"store"});
  options.exclude({"worker", "out"}, ": a worker makes no result");
  work.declare(options);
  declare_json(options, json);
}

void RunJob::check() const {
  workers_.check();
  if (!store_dir_ || is_worker()) return;
  const fs::path dir =
      store_dir_->has_filename() ? *store_dir_ : store_dir_->parent_path();  // "x/"
  if (dir.extension() != ".store") return;
  const FileKind kind = kind_of_name(dir.stem());
  if (kind == FileKind::csv || kind == FileKind::own_json || kind == FileKind::result)
    throw UsageError(
        "--store: a folder called {} is that of the --out of this name, and goes when it is done: "
        "expected another name",
        dir.filename().string());
}

void RunJob::check_table() const {
  if (!out) return;
  if (resume) remove_old_temporaries(*out, std::chrono::seconds(0));
  check_table_output(*out, /*overwrite=*/true);  // what lies there may be this very result
}

void RunJob::check_inputs() const {
  if (out) refuse_read_file(*out);
}

std::optional<fs::path> RunJob::folder() const {
  if (store_dir_) return store_dir_;
  return out ? std::optional<fs::path>(out->string() + ".store") : std::nullopt;
}

Store& RunJob::open(const Work& of) {
  const auto dir = folder();
  if (!dir || (may_resume_ && !is_split())) return store_.emplace();
  if (!store_dir_ && !maker_) maker_.emplace(*out);
  if (!store_dir_ && fs::exists(*out) && !may_replace()) refuse_other();  // made meanwhile
  if (!store_dir_ && is_store(*dir)) {
    if (Leases(*dir / "leases", Store().worker()).is_held_here())
      throw IoError("{}: another process is at it: wait until it ends, or name another --out",
                    dir->string());
    if (overwrite && !fs::exists(*dir / "recordings")) {  // of studies
      remove_store(*dir);
    } else if (!overwrite && !resume && !may_resume_) {
      throw IoError("{} exists: --resume continues it, --overwrite starts over", dir->string());
    }
  }
  store_.emplace(*dir);
  std::set<std::string> questions;
  for (const std::string& key : of.keys) questions.emplace(question_of(key));
  store_->add_plan({of.hash(), of.command, of.keys.size(), {questions.begin(), questions.end()}});
  was_known_ = items_left(of, *store_).empty();
  return *store_;
}

Interrupted RunJob::stopped(const Interrupted& error) const {
  const bool is_kept = store_ && !store_->folder().empty();
  return Interrupted(
      "{}{}", error.what(),
      is_kept ? fmt::format("; what is finished is in {}, {} continues", store_->folder().string(),
                            store_dir_ || may_resume_ ? "the same command" : "--resume")
              : "");
}

std::optional<int> RunJob::finish(const Work& of, const OptionSet& given, const std::string& name) {
  Store& store = open(of);
  if (workers_.retries_failed()) {
    for (const FailedItem& failed : failed_items(of, store)) store.forget(failed.key);
  }
  std::vector<std::string> words = given.words(name, kOptionsOfNoNumber);
  if (!store.folder().empty()) insert_options(words, {"--store", store.folder().string()});
  try {
    workers_.run(of, store, words, is_split() ? OnFailure::keep : OnFailure::stop, work);
  } catch (const Interrupted& error) {
    throw stopped(error);
  } catch (const Error&) {
    if (!store_dir_ && store.answers().empty()) remove_store(store.folder());
    throw;
  }
  const std::vector<FailedItem> failed = failed_items(of, store);
  has_failed_ = !failed.empty();
  if (is_worker()) note_failed(failed);
  if (is_worker()) return has_failed_ ? kPartlyFailed : kOk;
  if (has_failed_) refuse_failed(of, failed);
  return std::nullopt;
}

void RunJob::refuse_failed(const Work& of, const std::vector<FailedItem>& failed) const {
  constexpr std::size_t kNamed = 5;
  note_failed(failed);
  if (without_failed_ && of.may_lack) return;
  std::vector<std::string> keys;
  for (std::size_t i = 0; i < std::min(kNamed, failed.size()); ++i) keys.push_back(failed[i].key);
  throw PartlyFailed(
      "{}: {} of {} items failed ({}{}), {} are done in {}; {}", of.command, failed.size(),
      of.keys.size(), fmt::join(keys, ", "), keys.size() < failed.size() ? ", ..." : "",
      of.keys.size() - failed.size(), store_->folder().string(),
      without_failed_ ? "a result without them cannot be made"
      : of.may_lack
          ? "--retry-failed tries them again, --without-failed makes the result without them"
          : "--retry-failed tries them again");
}

void RunJob::check_command(const std::string& command_line) const {
  if (is_worker() || overwrite || !out || !fs::exists(*out)) return;
  const OwnFiles own;
  if (text_at(said_in(*out), "command_line", command_line) != command_line) refuse_other();
}

void RunJob::refuse_other() const {
  throw IoError(fmt::runtime(resume ? "{} exists and is of another configuration; --overwrite "
                                      "replaces it"
                                    : "{} exists; --overwrite replaces it"),
                out->string());
}

bool RunJob::is_complete(const Json& says, const std::function<std::string()>& empty_csv,
                         bool wants_more) {
  if (is_worker() || overwrite || !out || !fs::exists(*out)) return false;
  const OwnFiles own;
  const Json there = said_in(*out);
  const bool is_csv = kind_of_name(*out) == FileKind::csv;
  is_same_ = there.is_object();
  for (const auto& [name, value] : says.items()) {
    const bool is_told = name != "skipped" && (!is_csv || name == "config_hash");
    is_same_ = is_same_ && (!is_told || there.value(name, Json()) == value);
  }
  std::optional<bool> is_whole;
  if (is_same_ && empty_csv && kind_of_name(*out) != FileKind::result)
    is_whole = has_all_numbers(there, empty_csv());
  else if (is_same_)
    is_whole = true;
  if (is_whole && !is_csv && says.contains("skipped"))
    is_whole = *is_whole && there.value("skipped", Json()) == says["skipped"];
  is_same_ = is_whole.has_value();
  if (!is_same_) refuse_other();
  // What a named store lacks is done; who wants numbers on standard output gets them.
  is_whole_ = *is_whole;
  if (!is_whole_ || wants_more || json || store_dir_) return false;
  note("kvscope: {} is complete: nothing was left to do{}", out->string(),
       is_csv ? " (a CSV does not say which version of kvscope made it)" : "");
  if (is_store(*folder())) drop(Store(*folder()));  // a kill came between
  return true;
}

void RunJob::drop(const Store& store) const {
  if (store_dir_ || store.folder().empty()) return;
  if (store.is_of_one_work())
    remove_store(store.folder());
  else
    note("kvscope: {} stays: other work has items in it", store.folder().string());
}

int RunJob::end() const {
  if (has_failed_) return kPartlyFailed;
  if (store_) drop(*store_);
  if (is_same_ && was_known_)
    note("kvscope: {} is complete: nothing was left to do", out->string());
  return kOk;
}

}  // namespace kvscope::cli

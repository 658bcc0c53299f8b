// What all commands share that compute for long: which store they work with, who does the items,
// and what becomes of both.
//
// A command hands over its Work (analysis/runs/work.hpp). What is finished lies in the folder
// OUT.store beside --out, from which --resume goes on, and which goes when the result is there; or
// in the folder that --store names, which stays and is shared by whoever names it. Without either
// nothing is kept.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/cli/frame/common_options.hpp"
#include "analysis/runs/work.hpp"
#include "core/base/only_maker.hpp"

namespace kvscope::cli {

/// Options of any command that decide neither the numbers nor what a table shows: where it goes,
/// who computes it, and how fast. They are no part of a result's command line.
inline constexpr std::string_view kOptionsOfNoNumber[] = {
    "out",    "csv",    "resume",  "overwrite",    "json", "threads",      "progress",      "store",
    "worker", "engine", "workers", "show-prompts", "help", "retry-failed", "without-failed"};

/// --engine, --workers, --worker and --retry-failed: who does the items of a store.
class WorkerOptions {
 public:
  void declare(OptionSet& options);
  /// Throws UsageError.
  void check() const;
  bool is_worker() const { return worker_; }
  bool has_engine() const { return engine_.has_value(); }
  bool retries_failed() const { return retry_failed_; }

  /// Does what the store lacks: here, or by workers with these words of a command line and
  /// --worker. Throws what run_items does, and IoError if workers ended before their work did.
  void run(const Work& work, Store& store, std::vector<std::string> words, OnFailure on_failure,
           const WorkOptions& options) const;

 private:
  void run_engine(const Work& work, Store& store, std::vector<std::string> words,
                  const WorkOptions& options) const;

  bool worker_ = false;
  std::optional<std::string> engine_;
  std::optional<int> workers_;
  bool retry_failed_ = false;
};

class RunJob {
 public:
  std::optional<std::filesystem::path> out;
  bool resume = false;
  bool overwrite = false;
  bool json = false;
  WorkOptions work;

  /// --out, --resume and --overwrite of a table. `h5_has`: what only an .h5 file holds; `name`: of
  /// what is continued.
  void declare_table(OptionSet& options, std::string_view h5_has, std::string_view name);
  /// The options of stores, workers and of work, and --json.
  void declare_work(OptionSet& options);

  /// Throws UsageError for what contradicts itself, and for a named store that would be removed.
  void check() const;
  /// Throws, as check_table_output, before anything is computed.
  void check_table() const;
  /// Throws IoError if --out is there and tells another command line: before anything is loaded.
  void check_command(const std::string& command_line) const;
  /// Throws ConfigError if the output is a file that was read.
  void check_inputs() const;
  /// True if this process makes no result.
  bool is_worker() const { return workers_.is_worker(); }
  /// True if items are kept apart: a store is named, workers do them, or some have failed. What
  /// fails then stops nothing.
  bool is_split() const {
    return store_dir_ || workers_.has_engine() || workers_.retries_failed() || without_failed_;
  }

  /// The store of this run, of whatever work: keys are by contents. Throws IoError if there is one
  /// beside --out that is not continued.
  Store& open(const Work& of);
  /// Calls compute(progress, stop) after open(); a stop says how to go on.
  template <class Compute>
  void compute(const Compute& compute) {
    const Running run(work.progress);
    try {
      compute(run.progress, run.stop);
    } catch (const Interrupted& error) {
      throw stopped(error);
    }
  }
  /// open(), and every item done that is not known. Returns the exit code of a worker, which makes
  /// nothing of them. Throws PartlyFailed if items failed and the result is not asked for without.
  std::optional<int> finish(const Work& of, const OptionSet& given, const std::string& name);
  Store& store() { return *store_; }

  /// True if --out is asked for, and is not there already.
  bool writes() const { return out.has_value() && !is_whole_; }
  /// True if a finished result may lie at --out, which is replaced.
  bool may_replace() const { return overwrite || is_same_; }
  /// Whether --out is there, whole and without an item that failed, so that nothing is left to do;
  /// says so. `says`: what such a result tells of what made it, of "version", "command_line",
  /// "config_hash", "trace_hashes", "artifacts" and "skipped" what this command knows. `empty_csv`:
  /// the table as CSV, had every item failed. False as well where numbers are wanted elsewhere.
  /// Throws IoError if --out is there and of something else.
  bool is_complete(const nlohmann::ordered_json& says,
                   const std::function<std::string()>& empty_csv, bool wants_more = false);
  /// After the result is written: the store beside it goes, unless items failed. Returns the exit
  /// code.
  int end() const;

 private:
  std::optional<std::filesystem::path> folder() const;
  /// Removes the store beside --out, unless other work is in it.
  void drop(const Store& store) const;
  Interrupted stopped(const Interrupted& error) const;
  [[noreturn]] void refuse_other() const;
  void refuse_failed(const Work& of, const std::vector<FailedItem>& failed) const;

  bool may_resume_ = true;  // whether or not --resume is asked for
  bool is_same_ = false;    // what lies at --out is of this work
  bool is_whole_ = false;   // and lacks nothing
  bool was_known_ = false;  // nothing was left to do in the store
  std::optional<std::filesystem::path> store_dir_;
  bool without_failed_ = false;
  WorkerOptions workers_;
  std::optional<OnlyMaker> maker_;  // of an output whose store goes at the end
  std::optional<Store> store_;
  bool has_failed_ = false;
};

}  // namespace kvscope::cli

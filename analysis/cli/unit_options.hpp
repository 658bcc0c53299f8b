// The options of commands whose work can be cut into units: --list-units, --unit, --units, --engine
// and --workers. A command hands over its UnitWork and gets, where all units are wanted, the folder
// that holds them, from which it makes its result.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/cli/common_options.hpp"
#include "analysis/options/options.hpp"
#include "analysis/units/unit_folder.hpp"

namespace kvscope::cli {

/// Options of any command that decide neither the numbers nor what a table shows: where it goes,
/// who computes it, and how fast. They are no part of a result's command line.
inline constexpr std::string_view kOptionsOfNoNumber[] = {
    "out",      "csv",          "resume", "overwrite",    "json",           "threads",
    "progress", "list-units",   "unit",   "units",        "engine",         "workers",
    "shard",    "show-prompts", "help",   "retry-failed", "without-failed", "probe"};

/// Names what failed, some of it; empty if nothing did. `n_units`: of the whole work.
std::string failed_text(const UnitFolder& units);
/// Notes the sentence of every failed unit, or of the first of many.
void note_failed(const UnitFolder& units);

/// The words of a folder's command, which begin with its name and hold no option about files and
/// workers. Throws FormatError for others: a folder of units may come from anywhere.
std::vector<std::string> merging_words(const UnitFolder& units);

class UnitOptions {
 public:
  void declare(OptionSet& options);
  /// Those of which one is given where the work is cut into units.
  static Words names() { return {"list-units", "unit", "units", "engine"}; }

  /// True if the work is cut into units at all.
  bool is_used() const { return list_ || unit_ || folder_ || engine_; }
  /// True if units are listed or done, and nothing is made of them: --out is a folder then, or
  /// nothing.
  bool is_alone() const { return list_ || unit_; }
  /// Throws UsageError for what contradicts itself.
  void check(const std::optional<std::filesystem::path>& out) const;

  /// Says of which command the work is, with its words and the hash that follows.
  void seal(UnitWork& work, const OptionSet& given, const std::string& name) const;
  /// --list-units, or --unit. Returns an ExitCode.
  int run_alone(const UnitWork& work, const std::optional<std::filesystem::path>& out, bool json,
                const WorkOptions& options) const;
  /// --units, --engine: does what the folder lacks. Throws IoError if workers failed, Interrupted
  /// on a stop, PartlyFailed if units failed and the result is not asked for without them; what is
  /// finished stays.
  UnitFolder finish(const UnitWork& work, const std::optional<std::filesystem::path>& out,
                    const WorkOptions& options) const;
  /// After the result is written: a folder that nobody named goes away, unless units failed.
  /// Returns kPartlyFailed then, else kOk.
  int clean_up(const UnitFolder& units) const;

 private:
  void run_engine(const UnitWork& work, const std::filesystem::path& folder,
                  std::vector<std::string> todo, const WorkOptions& options) const;
  void refuse_failed(const UnitWork& work, const UnitFolder& units) const;

  bool list_ = false;
  bool probe_ = false;
  std::optional<std::string> unit_;
  std::optional<std::filesystem::path> folder_;
  std::optional<std::string> engine_;
  std::optional<int> workers_;
  bool retry_failed_ = false;
  bool without_failed_ = false;
};

}  // namespace kvscope::cli

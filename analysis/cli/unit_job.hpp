// What commands share that make a result of units: --out, --resume, --overwrite, the options of
// units and of work, the journal of a run, and what goes when the result is there.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "analysis/cli/common_options.hpp"
#include "analysis/cli/signals.hpp"
#include "analysis/cli/unit_options.hpp"
#include "analysis/units/journal.hpp"

namespace kvscope::cli {

class UnitJob {
 public:
  std::optional<std::filesystem::path> out;
  bool resume = false;
  bool overwrite = false;
  bool json = false;
  UnitOptions units;
  WorkOptions work;

  /// --out, --resume and --overwrite of a table. `h5_has`: what only an .h5 file holds; `name`: of
  /// what is continued.
  void declare_table(OptionSet& options, std::string_view h5_has, std::string_view name);
  /// The options of units and of work, and --json.
  void declare_work(OptionSet& options);

  /// Throws UsageError for what contradicts itself.
  void check() const { units.check(out); }
  /// Throws, as check_table_output, before anything is computed.
  void check_table(bool may_exist) const;
  /// Throws ConfigError if the output is a file that was read.
  void check_inputs() const;

  /// --list-units, or --unit: the exit code.
  int run_alone(const UnitWork& of) const { return units.run_alone(of, out, json, work); }
  /// --units, --engine: the folder of all, as UnitOptions::finish makes it.
  const UnitFolder& finish(const UnitWork& of);
  /// Returns compute(journal, mode, progress, stop); without --out there is no journal. `ending`:
  /// of its name, behind that of --out.
  template <class Compute>
  auto keep_journal(std::string_view ending, const Compute& compute) {
    const Running run(work.progress);
    if (out) journal_ = out->string() + std::string(ending);
    const JournalMode mode = resume      ? JournalMode::resume
                             : overwrite ? JournalMode::overwrite
                                         : JournalMode::fresh;
    try {
      return compute(journal_, mode, run.progress, run.stop);
    } catch (const Interrupted& error) {
      if (!journal_) throw;
      throw Interrupted("{}; what is finished is in {}, --resume continues", error.what(),
                        journal_->string());
    }
  }
  /// With --resume: whether --out is there already, of this configuration (its checksum stands in
  /// every form of a table); says so, and removes what is left of the journal. Throws IoError if
  /// --out is there and of another one.
  bool is_complete(std::string_view config_hash) const;
  /// After the result is written: the journal, or a folder that nobody named, goes. Returns the
  /// exit code.
  int end() const;

 private:
  std::optional<std::filesystem::path> journal_;
  std::optional<UnitFolder> finished_;
};

}  // namespace kvscope::cli

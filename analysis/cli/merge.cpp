// kvscope merge: the shards of a sweep, or the units of any work, as one result.
#include "analysis/sweep/sweep_result.hpp"

#include <filesystem>

#include "analysis/cli/command.hpp"
#include "analysis/cli/common_options.hpp"
#include "analysis/cli/output.hpp"
#include "analysis/cli/program.hpp"
#include "analysis/cli/save_text.hpp"
#include "analysis/cli/sweep_output.hpp"
#include "analysis/cli/unit_options.hpp"
#include "analysis/sweep/sweep.hpp"
#include "analysis/units/unit_folder.hpp"
#include "core/base/error.hpp"
#include "core/base/version.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

namespace {

class MergeCommand final : public Command {
 public:
  CommandCard card() const override {
    return {"merge",
            "join finished units, or the shards of a sweep, into one result",
            "Merges a folder of units (--unit ID --out DIR of kvscope sweep, simulate, analyze, "
            "cost), or the files of kvscope sweep --shard. Fails, and names the unit or shard, if "
            "one failed, is missing, unfinished, given twice, or of other inputs or another "
            "version. The result has the same bytes as that of one undivided run; an .h5 file, "
            "which holds its date, only if SOURCE_DATE_EPOCH is set. Units of a sweep need nothing "
            "else; those of other commands are merged by the command itself, which opens its "
            "inputs again (relative paths count from here), but computes nothing.",
            {{"kvscope merge sweep.csv.shard-*-of-4 --out sweep.csv", "four shards to one table"},
             {"kvscope merge units --out sweep.csv", "a folder of units to one table"}}};
  }
  void declare(OptionSet& options) override {
    options.positional("DIR", "a folder of units, or the files that kvscope sweep --shard wrote",
                       parts_,
                       /*required=*/true);
    options.add("out", "FILE", "write the result, as the command's own --out", out_).short_name =
        'o';
    options.flag("overwrite", "replace an existing file", overwrite_);
    options.flag("without-failed",
                 "make the result although units failed; their rows are empty, and the code is 4",
                 without_failed_);
    declare_json(options, json_);
  }
  int run(const OptionSet&, const std::string&) override {
    std::error_code error;
    for (const fs::path& part : parts_) {
      if (!fs::is_directory(part, error)) continue;
      if (parts_.size() > 1)
        throw UsageError(
            "expected one folder of units or the shards of a sweep, found {} and others",
            part.string());
      return merge_units(read_unit_folder(part));
    }
    if (out_) check_table_output(*out_, overwrite_);
    return tell(merge_sweep(parts_), kOk);
  }

 private:
  int tell(const SweepResult& result, int code) const {
    if (out_) write_sweep_output(result, *out_, overwrite_);
    json_ ? print_json(sweep_json(result)) : print(sweep_summary(result));
    return code;
  }

  int merge_units(const UnitFolder& units) const {
    require_all_units(units, "merge");
    if (!units.failed.empty() && !without_failed_) {
      note_failed(units);
      throw PartlyFailed("merge: {}; --without-failed makes the result without them",
                         failed_text(units));
    }
    if (units.version != writer_name()) {
      throw ConfigError(
          "merge: {} holds units of {}, this is {}: merge with the version that made them",
          units.folder.string(), units.version, writer_name());
    }
    if (units.command == "sweep") {
      if (out_) check_table_output(*out_, overwrite_);
      return tell(merge_sweep({read_sweep_journal(units)}),
                  units.failed.empty() ? kOk : kPartlyFailed);
    }
    std::vector<std::string> words = merging_words(units);
    std::vector<std::string> more = {"--units", units.folder.string()};
    if (out_) more.insert(more.end(), {"--out", out_->string()});
    if (overwrite_) more.emplace_back("--overwrite");
    if (without_failed_) more.emplace_back("--without-failed");
    if (json_) more.emplace_back("--json");
    insert_options(words, more);
    return run_program(words);
  }

  std::vector<fs::path> parts_;
  std::optional<fs::path> out_;
  bool overwrite_ = false;
  bool without_failed_ = false;
  bool json_ = false;
};

}  // namespace

KVSCOPE_COMMAND(340, MergeCommand)

}  // namespace kvscope::cli

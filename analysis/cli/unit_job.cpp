#include "analysis/cli/unit_job.hpp"

#include "analysis/cli/output.hpp"
#include "analysis/cli/save_text.hpp"
#include "analysis/options/exit_code.hpp"
#include "core/base/error.hpp"
#include "core/base/new_file.hpp"
#include "core/base/read_files.hpp"
#include "core/base/whole_file.hpp"

namespace kvscope::cli {

void UnitJob::declare_table(OptionSet& options, std::string_view h5_has, std::string_view name) {
  options
      .add("out", "FILE", fmt::format("write the table as .csv, .json or .h5 (with {})", h5_has),
           out)
      .short_name = 'o';
  options.flag("resume", fmt::format("continue an interrupted {} of the same configuration", name),
               resume);
  options.flag("overwrite", "replace existing files and start over", overwrite);
  options.exclude({"resume", "overwrite"});
  options.exclude_each({"resume"}, UnitOptions::names(),
                       ": a run continues from the folder of units");
  options.need({"resume"}, {"out"});
}

void UnitJob::declare_work(OptionSet& options) {
  units.declare(options);
  work.declare(options);
  declare_json(options, json);
}

void UnitJob::check_table(bool may_exist) const {
  if (!out || units.is_alone()) return;
  if (resume) remove_old_temporaries(*out, std::chrono::seconds(0));
  check_table_output(*out, may_exist || resume);
}

bool UnitJob::is_complete(std::string_view config_hash) const {
  constexpr std::size_t kMostBytes = std::size_t{1} << 30;
  if (!resume || !out || !std::filesystem::exists(*out)) return false;
  const OwnFiles own;
  if (read_regular_file(*out, kMostBytes).find(config_hash) == std::string::npos)
    throw IoError("{} exists and is of another configuration; --overwrite replaces it",
                  out->string());
  remove_quietly(out->string() + ".journal");
  note("kvscope: {} is complete: nothing was left to do", out->string());
  return true;
}

void UnitJob::check_inputs() const {
  if (out && !units.is_alone()) refuse_read_file(*out);
}

const UnitFolder& UnitJob::finish(const UnitWork& of) {
  return finished_.emplace(units.finish(of, out, work));
}

int UnitJob::end() const {
  if (finished_) return units.clean_up(*finished_);
  if (journal_) std::filesystem::remove(*journal_);
  return kOk;
}

}  // namespace kvscope::cli

#include "traces/recover.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/new_file.hpp"
#include "core/base/vocabulary.hpp"
#include "traces/copy.hpp"
#include "traces/layout.hpp"
#include "traces/set_files.hpp"
#include "traces/trace_set.hpp"
#include "traces/whole_units.hpp"

namespace kvscope {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_nothing_whole(const fs::path& part, const std::string& problem) {
  throw FormatError("{}: nothing to recover: {}", part.string(),
                    problem.empty() ? "no unit was recorded to its end" : problem);
}

CopyOptions recovered_copy(Index n_units, bool overwrite, std::stop_token stop) {
  CopyOptions options;
  options.status = TraceStatus::recovered;
  options.overwrite = overwrite;
  options.max_units = n_units;
  options.stop = std::move(stop);
  return options;
}

/// The file that has a part's units: a part may have got its name before the recording was killed.
fs::path source_of(const fs::path& growing, const SetManifest& set, const SetPart& part) {
  const fs::path source = file_of_part(growing, set, part);
  if (!fs::exists(source))
    throw IoError("{}: its part {} is missing", growing.string(), source.string());
  return source;
}

/// What all parts have. The first problem of any goes to the report.
WholeUnits count_common_units(const std::vector<fs::path>& sources, RecoverReport& report,
                              const ProgressFn& progress, const std::stop_token& stop) {
  std::optional<WholeUnits> all;
  for (const fs::path& source : sources) {
    const WholeUnits one = count_whole_units(source, progress, stop);
    if (!one.first_problem.empty() && report.first_problem.empty())
      report.first_problem = fmt::format("{}: {}", source.string(), one.first_problem);
    if (!all) all = one;
    all->n_planned_units = std::min(all->n_planned_units, one.n_planned_units);
    all->n_planned_tokens = std::min(all->n_planned_tokens, one.n_planned_tokens);
    all->n_committed = std::min(all->n_committed, one.n_committed);
    all->n_good = std::min(all->n_good, one.n_good);
  }
  report.n_planned_units = all->n_planned_units;
  report.n_planned_tokens = all->n_planned_tokens;
  report.n_damaged_units = all->n_committed - all->n_good;
  return *all;
}

/// One part of the set that is made: its source, and its name.
struct RecoveredPart {
  fs::path source;
  fs::path target;
  bool is_done = false;  // the source has the name already, and no unit more than the set
};

/// Names the parts of `out`, of `n_units` units each. Throws ConfigError where one of them would
/// take the place of a file that the recovery reads: it may be the only copy of more units.
std::vector<RecoveredPart> name_parts(const fs::path& out, SetManifest& whole,
                                      const std::vector<fs::path>& sources, Index n_units,
                                      bool overwrite) {
  std::vector<RecoveredPart> parts;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const TraceInfo header = open_layout(sources[i]).info;
    whole.parts[i].file = set_part_name(out, whole.parts[i].layers, header.n_layers);
    RecoveredPart part = {sources[i], out.parent_path() / whole.parts[i].file};
    const std::optional<fs::path> source = input_behind(part.target, sources);
    part.is_done = source == sources[i] && static_cast<Index>(header.units.size()) == n_units;
    if (source && !part.is_done)
      throw ConfigError(
          "{}: the recovery reads it, and its part of the new set, with {} units, would take its "
          "place; give the new set another name",
          part.target.string(), n_units);
    if (!part.is_done) check_output(part.target, overwrite);
    parts.push_back(std::move(part));
  }
  return parts;
}

/// The set of the units that all parts have.
RecoverReport recover_set(const fs::path& growing, const fs::path& out, bool overwrite,
                          const ProgressFn& progress, const std::stop_token& stop) {
  SetManifest whole;
  whole.parts = read_set_manifest(growing).parts;
  std::vector<fs::path> sources;
  for (const SetPart& part : whole.parts) sources.push_back(source_of(growing, whole, part));
  RecoverReport report;
  report.n_units = count_common_units(sources, report, progress, stop).n_good;
  if (report.n_units == 0) fail_nothing_whole(growing, report.first_problem);

  std::vector<NewFile> copies;
  std::vector<fs::path> files;
  for (const RecoveredPart& part : name_parts(out, whole, sources, report.n_units, overwrite)) {
    files.push_back(part.source);
    if (part.is_done) continue;
    UnnamedCopy copy = copy_unnamed(part.source, part.target,
                                    recovered_copy(report.n_units, overwrite, stop), progress);
    files.back() = copy.file.temporary();
    copies.push_back(std::move(copy.file));
  }
  seal_manifest(whole, files, TraceStatus::recovered);
  report.n_tokens = open_layout(files.front()).info.n_tokens;
  report.content_hash = whole.content_hash;
  std::size_t n_named = 0;
  try {
    publish_set(out, whole, overwrite, sources, [&] {
      for (; n_named < copies.size(); ++n_named) copies[n_named].publish();
    });
  } catch (
      ...) {  // where they replaced nothing, parts without a set would be in the next try's way
    for (std::size_t i = 0; i < n_named && !overwrite; ++i) remove_quietly(copies[i].target());
    throw;
  }
  return report;
}

}  // namespace

RecoverReport recover_trace(const fs::path& part, const fs::path& out, bool overwrite,
                            const ProgressFn& progress, std::stop_token stop) {
  if (input_behind(out, std::span(&part, 1)))
    throw ConfigError("{}: is the input; a recovered trace goes to a file of its own",
                      out.string());
  if (is_set_path(part) && !is_set_path(out))
    throw ConfigError("{}: expected a name that ends in .kvset for a trace set", out.string());
  if (is_set_path(out) && !is_set_path(part))
    throw ConfigError(
        "{}: names a trace set, but {} is a single file; expected a name as in trace.h5",
        out.string(), part.string());
  check_output(out, overwrite);
  if (is_set_path(part)) return recover_set(part, out, overwrite, progress, stop);
  RecoverReport report;
  const WholeUnits whole = count_whole_units(part, progress, stop);
  report.n_planned_units = whole.n_planned_units;
  report.n_planned_tokens = whole.n_planned_tokens;
  report.first_problem = whole.first_problem;
  report.n_damaged_units = whole.n_committed - whole.n_good;
  if (whole.n_good == 0) fail_nothing_whole(part, whole.first_problem);
  const CopyReport copied =
      copy_trace(part, out, recovered_copy(whole.n_good, overwrite, stop), progress);
  report.n_units = copied.n_units;
  report.n_tokens = copied.n_tokens;
  report.content_hash = copied.content_hash;
  return report;
}

}  // namespace kvscope

#include "traces/recover.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/new_file.hpp"
#include "traces/copy.hpp"
#include "traces/layout.hpp"
#include "traces/pieces.hpp"
#include "traces/raw_file.hpp"
#include "traces/trace_set.hpp"

namespace kvscope {

namespace {

namespace fs = std::filesystem;

/// What is wrong with a unit; empty if nothing is.
std::string problem_of(const TraceLayout& layout, Index unit) {
  for (std::size_t array = 0; array < layout.arrays.size(); ++array) {
    for (Index head = 0; head < layout.arrays[array].n_heads(); ++head) {
      std::string problem = check_piece(layout, array, unit, head, {});
      if (!problem.empty()) return problem;
    }
  }
  if (!layout.token_bytes) return {};
  try {
    std::uint64_t recorded = 0;
    layout.text_checksums->read({unit}, {1}, &recorded);
    if (recorded != text_checksum(layout, unit)) {
      return fmt::format("unit {}: the token text does not have the recorded checksum", unit);
    }
  } catch (const FormatError& error) {
    return error.what();
  }
  return {};
}

/// How much of a recording is whole.
struct WholeUnits {
  Index n_planned_units = 0;
  Index n_planned_tokens = 0;
  Index n_committed = 0;
  Index n_good = 0;
  std::string first_problem;
};

WholeUnits count_whole_units(const fs::path& part, const ProgressFn& progress,
                             const std::stop_token& stop) {
  if (is_being_recorded(part)) {
    throw IoError(
        fmt::format("{} is being recorded by another process: stop that first", part.string()));
  }
  const TraceLayout layout = open_layout(part);
  if (!layout.has_checksums()) {
    throw FormatError(fmt::format(
        "{}: has no checksums, so nothing tells which of its data are whole", part.string()));
  }
  WholeUnits whole;
  whole.n_planned_units = static_cast<Index>(layout.info.units.size());
  whole.n_planned_tokens = layout.info.n_tokens;
  whole.n_committed = layout.n_committed();
  while (whole.n_good < whole.n_committed) {
    if (stop.stop_requested())
      throw Interrupted(fmt::format("{}: the recovery was stopped", part.string()));
    whole.first_problem = problem_of(layout, whole.n_good);
    if (!whole.first_problem.empty()) break;
    ++whole.n_good;
    if (progress) progress({"check", whole.n_good, whole.n_committed, "units"});
  }
  return whole;
}

[[noreturn]] void fail_nothing_whole(const fs::path& part, const std::string& problem) {
  throw FormatError(fmt::format("{}: nothing to recover: {}", part.string(),
                                problem.empty() ? "no unit was recorded to its end" : problem));
}

CopyOptions recovered_copy(Index n_units, bool overwrite, std::stop_token stop) {
  CopyOptions options;
  options.status = TraceStatus::recovered;
  options.overwrite = overwrite;
  options.max_units = n_units;
  options.stop = std::move(stop);
  return options;
}

/// The set of the units that all parts have. A part that got its name before the recording was
/// killed stays what it is, if it has that many.
RecoverReport recover_set(const fs::path& growing, const fs::path& out, bool overwrite,
                          const ProgressFn& progress, const std::stop_token& stop) {
  SetManifest manifest = read_set_manifest(growing);
  const fs::path folder = set_folder(growing);
  std::vector<fs::path> sources;
  WholeUnits all;
  RecoverReport report;
  for (const SetPart& part : manifest.parts) {
    const fs::path named = folder / part.file;
    const fs::path source = fs::exists(part_path(named)) ? part_path(named) : named;
    if (!fs::exists(source))
      throw IoError(fmt::format("{}: its part {} is missing", growing.string(), source.string()));
    sources.push_back(source);
    WholeUnits one = count_whole_units(source, progress, stop);
    if (!one.first_problem.empty() && report.first_problem.empty())
      report.first_problem = fmt::format("{}: {}", source.string(), one.first_problem);
    const bool is_first = sources.size() == 1;
    all.n_planned_units =
        is_first ? one.n_planned_units : std::min(all.n_planned_units, one.n_planned_units);
    all.n_planned_tokens =
        is_first ? one.n_planned_tokens : std::min(all.n_planned_tokens, one.n_planned_tokens);
    all.n_committed = is_first ? one.n_committed : std::min(all.n_committed, one.n_committed);
    all.n_good = is_first ? one.n_good : std::min(all.n_good, one.n_good);
  }
  report.n_planned_units = all.n_planned_units;
  report.n_planned_tokens = all.n_planned_tokens;
  report.n_damaged_units = all.n_committed - all.n_good;
  if (all.n_good == 0) fail_nothing_whole(growing, report.first_problem);

  SetManifest whole = manifest;
  std::vector<fs::path> written;
  report.n_units = all.n_good;
  try {
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const TraceInfo header = open_layout(sources[i]).info;
      whole.parts[i].file = set_part_name(out, whole.parts[i].layers, header.n_layers);
      const fs::path target = out.parent_path() / whole.parts[i].file;
      std::error_code error;
      const bool is_done = fs::equivalent(sources[i], target, error) && !error &&
                           static_cast<Index>(header.units.size()) == all.n_good;
      report.n_tokens = header.n_tokens;
      if (is_done) continue;
      report.n_tokens =
          copy_trace(sources[i], target, recovered_copy(all.n_good, overwrite, stop), progress)
              .n_tokens;
      written.push_back(target);
    }
    seal_manifest(whole, fs::absolute(out).parent_path(), TraceStatus::recovered);
    report.content_hash = whole.content_hash;
    write_new_file(out, set_manifest_text(whole), overwrite);
  } catch (...) {  // a part without its set would be in the way of the next try
    for (const fs::path& file : written) remove_quietly(file);
    throw;
  }
  return report;
}

}  // namespace

RecoverReport recover_trace(const fs::path& part, const fs::path& out, bool overwrite,
                            const ProgressFn& progress, std::stop_token stop) {
  check_output(out, overwrite);
  if (is_set_path(part)) {
    if (!is_set_path(out))
      throw ConfigError(
          fmt::format("{}: expected a name that ends in .kvset for a trace set", out.string()));
    return recover_set(part, out, overwrite, progress, stop);
  }
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

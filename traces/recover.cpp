#include "traces/recover.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/new_file.hpp"
#include "traces/copy.hpp"
#include "traces/layout.hpp"
#include "traces/pieces.hpp"
#include "traces/raw_file.hpp"

namespace kvscope {

namespace {

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

}  // namespace

RecoverReport recover_trace(const std::filesystem::path& part, const std::filesystem::path& out,
                            bool overwrite, const ProgressFn& progress) {
  check_output(out, overwrite);
  if (is_being_recorded(part)) {
    throw IoError(
        fmt::format("{} is being recorded by another process: stop that first", part.string()));
  }
  RecoverReport report;
  Index n_good = 0;
  {
    const TraceLayout layout = open_layout(part);
    if (!layout.has_checksums()) {
      throw FormatError(fmt::format(
          "{}: has no checksums, so nothing tells which of its data are whole", part.string()));
    }
    report.n_planned_units = static_cast<Index>(layout.info.units.size());
    report.n_planned_tokens = layout.info.n_tokens;
    const Index n_committed = layout.n_committed();
    while (n_good < n_committed) {
      report.first_problem = problem_of(layout, n_good);
      if (!report.first_problem.empty()) break;
      ++n_good;
      if (progress) progress({"check", n_good, n_committed, "units"});
    }
    report.n_damaged_units = n_committed - n_good;
    if (n_good == 0) {
      throw FormatError(fmt::format(
          "{}: nothing to recover: {}", part.string(),
          report.first_problem.empty() ? "no unit was recorded to its end" : report.first_problem));
    }
  }
  CopyOptions options;
  options.status = TraceStatus::recovered;
  options.overwrite = overwrite;
  options.max_units = n_good;
  const CopyReport copied = copy_trace(part, out, options, progress);
  report.n_units = copied.n_units;
  report.n_tokens = copied.n_tokens;
  report.content_hash = copied.content_hash;
  return report;
}

}  // namespace kvscope

#include "traces/recover.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/new_file.hpp"
#include "traces/copy.hpp"
#include "traces/layout.hpp"
#include "traces/whole_calls.hpp"

namespace kvscope {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_nothing_whole(const fs::path& part, const std::string& problem) {
  throw FormatError("{}: nothing to recover: {}", part.string(),
                    problem.empty() ? "no call was recorded to its end" : problem);
}

CopyOptions recovered_copy(Index n_calls, bool overwrite, std::stop_token stop) {
  CopyOptions options;
  options.status = TraceStatus::recovered;
  options.overwrite = overwrite;
  options.max_calls = n_calls;
  options.stop = std::move(stop);
  return options;
}

}  // namespace

RecoverReport recover_trace(const fs::path& part, const fs::path& out, bool overwrite,
                            const ProgressFn& progress, std::stop_token stop) {
  if (input_behind(out, std::span(&part, 1)))
    throw ConfigError("{}: is the input; a recovered trace goes to a file of its own",
                      out.string());
  check_output(out, overwrite, FileKind::trace);
  RecoverReport report;
  const WholeCalls whole = count_whole_calls(part, progress, stop);
  report.n_planned_calls = whole.n_planned_calls;
  report.n_planned_tokens = whole.n_planned_tokens;
  report.first_problem = whole.first_problem;
  report.n_damaged_calls = whole.n_committed - whole.n_good;
  if (whole.n_good == 0) fail_nothing_whole(part, whole.first_problem);
  const CopyReport copied =
      copy_trace(part, out, recovered_copy(whole.n_good, overwrite, stop), progress);
  report.n_calls = copied.n_calls;
  report.n_tokens = copied.n_tokens;
  report.content_hash = copied.content_hash;
  return report;
}

}  // namespace kvscope

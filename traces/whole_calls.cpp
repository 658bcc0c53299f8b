#include "traces/whole_calls.hpp"

#include "core/base/error.hpp"
#include "traces/layout.hpp"
#include "traces/pieces.hpp"
#include "traces/raw_file.hpp"

namespace kvscope {

WholeCalls count_whole_calls(const std::filesystem::path& part, const ProgressFn& progress,
                             const std::stop_token& stop) {
  if (is_being_recorded(part))
    throw IoError("{} is being recorded by another process: stop that first", part.string());
  const TraceLayout layout = open_layout(part);
  if (!layout.has_checksums()) {
    throw FormatError("{}: has no checksums, so nothing tells which of its data are whole",
                      part.string());
  }
  WholeCalls whole;
  whole.n_planned_calls = static_cast<Index>(layout.info.calls.size());
  whole.n_planned_tokens = layout.info.n_tokens;
  whole.n_committed = layout.n_committed();
  while (whole.n_good < whole.n_committed) {
    if (stop.stop_requested())
      throw Interrupted("{}: the look at what is whole was stopped", part.string());
    whole.first_problem = check_call(layout, whole.n_good);
    if (!whole.first_problem.empty()) break;
    ++whole.n_good;
    if (progress) progress({"check", whole.n_good, whole.n_committed, "calls"});
  }
  return whole;
}

}  // namespace kvscope

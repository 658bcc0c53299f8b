// Compares the statistics that a trace recorded (norms, page minima and maxima) with its q and k.
#pragma once

#include <string>
#include <vector>

#include "traces/reader.hpp"

namespace kvscope {

/// What is wrong with the statistics of one layer's KV head and of the recorded query heads that
/// share it: at most one sentence per array and head, for its first wrong number. Differences that
/// storing q and k in the trace's number type explains are allowed. The trace has to hold q, k and
/// statistics. Reads all keys of the head.
std::vector<std::string> check_stats(const TraceFile& trace, Index layer, Index kv_head);

}  // namespace kvscope

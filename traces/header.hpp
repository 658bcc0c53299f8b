// The attributes and small arrays with which a trace describes itself: TraceInfo to HDF5 and back.
#pragma once

#include <string>
#include <vector>

#include "core/trace/info.hpp"
#include "traces/h5.hpp"

namespace kvscope {

/// Writes everything of `info` (attributes of the root, /units, /recorded, /model). Status, uuid
/// and content hash get room for their later values.
void write_header(h5::File& file, const TraceInfo& info);

/// Rewrites status, uuid and content hash in place; no other byte of the file's metadata moves.
void seal_header(h5::File& file, const TraceInfo& info);

/// What a file says about itself, checked (check_trace_info). Unknown features become `warnings`.
/// Throws FormatError: not a kvscope trace, a newer major version, something missing, out of range
/// or contradictory.
TraceInfo read_header(const h5::File& file, std::vector<std::string>& warnings);

}  // namespace kvscope

// Makes a trace of a recording that was killed: all calls that were whole, checked piece by piece.
#pragma once

#include <filesystem>
#include <stop_token>
#include <string>

#include "core/base/progress.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

struct RecoverReport {
  Index n_calls = 0;          // in the new trace
  Index n_planned_calls = 0;  // of the recording that was planned
  Index n_damaged_calls = 0;  // committed, but left out since a checksum failed in or before them
  Index n_tokens = 0;
  Index n_planned_tokens = 0;
  std::string content_hash;
  std::string first_problem;  // what was wrong with the first damaged call; empty if none was
};

/// Writes the whole calls of `part` to `out` with status "recovered"; `part` stays (the caller may
/// delete it). Calls from the first damaged one on are left out. Throws IoError (a live process is
/// recording into it, `out` exists), FormatError (no whole call, not a trace), or Interrupted once
/// `stop` is requested, which leaves no file.
RecoverReport recover_trace(const std::filesystem::path& part, const std::filesystem::path& out,
                            bool overwrite, const ProgressFn& progress = {},
                            std::stop_token stop = {});

}  // namespace kvscope

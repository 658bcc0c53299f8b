// What a file says of itself, as kvscope info and the window show it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/trace/info.hpp"

namespace kvscope {

struct TraceOfFile {
  const TraceInfo& info;
  const TraceInfo& planned;  // what it was to have
  std::string file;
  std::int64_t file_bytes = 0;
  std::vector<std::string> warnings;
};

/// {"what": "trace", "file", "file_bytes", "status", "model": {...}, ...}
nlohmann::ordered_json describe_trace(const TraceOfFile& trace);

/// Line breaks of a file's strings must not look like lines of ours.
std::string one_line(const std::string& text);

/// A description's names ("model.n_layers") and values, each of one line.
std::vector<std::pair<std::string, std::string>> described_lines(
    const nlohmann::ordered_json& json);

}  // namespace kvscope

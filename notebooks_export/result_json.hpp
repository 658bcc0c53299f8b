// A result as JSON text: what was computed from which traces with which options, and the summary;
// no arrays.
#pragma once

#include <string>

#include "core/trace/result.hpp"

namespace kvscope {

/// {"kind", "traces": [{"uuid", "hash", "file"}], "config", "config_hash", "command_line",
/// "writer", "created", "summary"}, keys in this order. NaN and infinities become null, bytes that
/// are not UTF-8 the replacement character.
nlohmann::ordered_json result_to_json(const ResultInfo& info,
                                      const nlohmann::ordered_json& summary);

/// The same as text; indent < 0 gives one line.
std::string result_json_text(const ResultInfo& info, const nlohmann::ordered_json& summary,
                             int indent = 2);

}  // namespace kvscope

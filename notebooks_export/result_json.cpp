#include "notebooks_export/result_json.hpp"

#include <cmath>

namespace kvscope {

namespace {

/// Replaces every number that JSON cannot write by null.
void null_for_non_finite(nlohmann::ordered_json& json) {
  if (json.is_number_float() && !std::isfinite(json.get<double>())) {
    json = nullptr;
  } else if (json.is_structured()) {
    for (auto& element : json) null_for_non_finite(element);
  }
}

std::string at_or_empty(const std::vector<std::string>& list, std::size_t i) {
  return i < list.size() ? list[i] : std::string();
}

}  // namespace

nlohmann::ordered_json result_to_json(const ResultInfo& info,
                                      const nlohmann::ordered_json& summary) {
  nlohmann::ordered_json json;
  json["kind"] = info.kind;
  json["traces"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < info.trace_uuids.size(); ++i) {
    nlohmann::ordered_json trace;
    trace["uuid"] = info.trace_uuids[i];
    trace["hash"] = at_or_empty(info.trace_hashes, i);
    trace["file"] = at_or_empty(info.trace_files, i);
    json["traces"].push_back(trace);
  }
  json["config"] = info.config;
  json["config_hash"] = info.config_hash;
  json["command_line"] = info.command_line;
  json["writer"] = info.writer;
  json["created"] = info.created;
  if (summary.is_object() && summary.contains("layers") && summary["layers"].is_array())
    json["rows"] = summary["layers"];  // by the name that sweeps and simulations use
  json["summary"] = summary;
  null_for_non_finite(json);
  return json;
}

std::string result_json_text(const ResultInfo& info, const nlohmann::ordered_json& summary,
                             int indent) {
  return result_to_json(info, summary)
      .dump(indent, ' ', /*ensure_ascii=*/false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace kvscope

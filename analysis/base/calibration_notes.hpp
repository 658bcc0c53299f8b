// What a run says about methods that load what they learned: which files, and whether they are
// tested on what they learned from.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/selectors/method_spec.hpp"
#include "core/trace/info.hpp"

namespace kvscope {

/// Adds "artifacts" to a run's configuration: {"selector", "method", "checksum", "trace_uuid",
/// "trace_hash"} of every file that the selectors name, so that another file under the same name is
/// another run; nothing if there is none. Reads the files; throws what read_artifact throws.
void add_artifacts(const std::vector<MethodSpec>& selectors, nlohmann::ordered_json& config);

/// Throws what the selectors say about files of another model than the recording's,
/// before any work.
void check_artifacts(const std::vector<MethodSpec>& selectors, const TraceInfo& info);

/// A sentence for every selector and recording of a sweep's configuration ("artifacts", "traces")
/// where the method learned from the very recording that it is tested on, by uuid or by content.
std::vector<std::string> calibration_warnings(const nlohmann::ordered_json& config);

}  // namespace kvscope

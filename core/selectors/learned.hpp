// What a method learned from a calibration text, and where a run that loads it has it from.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace kvscope {

/// What Selector::learned() hands out: made by calibrate() or loaded from a file.
struct Learned {
  nlohmann::ordered_json values;   // the method's own
  nlohmann::ordered_json options;  // of the method, that decided the values
  std::string summary;             // one line for people
};

/// The file that a method has it from (core/selectors/artifact.hpp), and the recording behind that.
struct ArtifactOrigin {
  std::string method;
  std::string file;
  std::string checksum;  // of the file's contents
  std::string trace_uuid;
  std::string trace_hash;  // TraceInfo::content_hash; empty if the recording had none
};

}  // namespace kvscope

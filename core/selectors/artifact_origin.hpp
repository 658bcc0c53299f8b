// Where a run that loads what a method learned has it from.
#pragma once

#include <string>

namespace kvscope {

/// The file that a method has it from (core/selectors/artifact.hpp), and the recording behind that.
struct ArtifactOrigin {
  std::string method;
  std::string file;
  std::string checksum;  // of the file's contents
  std::string trace_uuid;
  std::string trace_hash;  // TraceInfo::content_hash; empty if the recording had none
};

}  // namespace kvscope

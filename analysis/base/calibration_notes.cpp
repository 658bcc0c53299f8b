#include "analysis/base/calibration_notes.hpp"

#include <fmt/format.h>

#include "core/base/json.hpp"
#include "core/sim/replay_run.hpp"

namespace kvscope {

void add_artifacts(const std::vector<MethodSpec>& selectors, Json& config) {
  for (const MethodSpec& selector : selectors) {
    for (const ArtifactOrigin& origin : selector.make()->artifacts()) {
      config["artifacts"].push_back({{"selector", selector.text()},
                                     {"method", origin.method},
                                     {"checksum", origin.checksum},
                                     {"trace_uuid", origin.trace_uuid},
                                     {"trace_hash", origin.trace_hash}});
    }
  }
}

void check_artifacts(const std::vector<MethodSpec>& selectors, const TraceInfo& info) {
  const AttentionShape shape = shape_of(info);
  for (const MethodSpec& selector : selectors) {
    const std::unique_ptr<Selector> method = selector.make();
    if (!method->artifacts().empty()) method->reset(shape);
  }
}

std::vector<std::string> calibration_warnings(const Json& config) {
  std::vector<std::string> sentences;
  const auto list = [&](const char* name) {
    return config.contains(name) ? config[name] : Json::array();
  };
  const auto is_same = [](const Json& a, const char* of_a, const Json& b, const char* of_b) {
    const std::string text = a.value(of_a, "");
    return !text.empty() && text == b.value(of_b, "");
  };
  for (const Json& artifact : list("artifacts")) {
    for (const Json& trace : list("traces")) {
      if (!is_same(artifact, "trace_uuid", trace, "uuid") &&
          !is_same(artifact, "trace_hash", trace, "hash"))
        continue;
      sentences.push_back(fmt::format(
          "selector {} learned from {}, the recording that it is tested on: fit it on another text",
          artifact.value("selector", ""), trace.value("name", "")));
    }
  }
  return sentences;
}

}  // namespace kvscope

#include "analysis/cli/runs/all_methods.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/cli/frame/list_options.hpp"
#include "core/base/lists.hpp"

namespace kvscope::cli {

namespace {

/// Why the run cannot have this method; empty if it can.
std::string why_not(const SelectorEntry& entry, const MethodNeeds& needs) {
  if (!entry.caps.is_defined(needs.phase))
    return fmt::format("is not defined for {}", name_of(needs.phase));
  if (entry.caps.needs_draft && !needs.has_draft) return "needs a draft model, and none is given";
  if (entry.caps.needs_rotation && !needs.has_rotation)
    return "needs to know how the model rotates its keys, and the recording does not say";
  if (entry.caps.needs_projection && !needs.has_projection)
    return "needs the model's output projection, which recordings do not have";
  if (entry.caps.cross_layer && !needs.has_like_layers)
    return "carries what it finds in one layer to others, and layers differ in heads or scores";
  if (!entry.caps.needs_calibration || needs.has_calibration) return "";
  return entry.caps.artifact_option.empty()
             ? std::string("learns from a calibration text, and none is given")
             : fmt::format(
                   "learns from a calibration text or a file of kvscope fit ({}=FILE), and "
                   "none is given",
                   entry.caps.artifact_option);
}

}  // namespace

MethodList methods_of(const std::vector<std::string>& lists, const MethodNeeds& needs) {
  std::vector<std::string> named;
  bool wants_all = false;
  for (const std::string& list : lists) {
    std::string rest;
    for (const std::string& word : split_words(list, ',')) {
      if (word == "all") {
        wants_all = true;
      } else {
        rest += (rest.empty() ? "" : ",") + word;
      }
    }
    if (!rest.empty() || list.empty()) named.push_back(rest);
  }
  MethodList out{.methods = selectors_of(named)};
  if (!wants_all) return out;
  const std::vector<MethodSpec> beside = out.methods;
  for (const SelectorEntry& entry : selector_registry().entries()) {
    const bool is_named = std::ranges::any_of(beside, [&](const MethodSpec& method) {
      return method.stages().size() == 1 && method.stages().front().method == &entry;
    });
    if (is_named) continue;
    const std::string reason = why_not(entry, needs);
    if (reason.empty()) {
      out.methods.emplace_back(entry.name);
    } else {
      out.left_out.push_back(fmt::format("{} {}", entry.name, reason));
    }
  }
  return out;
}

}  // namespace kvscope::cli

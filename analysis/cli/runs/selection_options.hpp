// --layers and --heads of the analyses that can look at a part of a trace.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "analysis/base/trace_selection.hpp"
#include "analysis/options/options.hpp"

namespace kvscope::cli {

struct SelectionOptions {
  std::optional<std::string> layers;
  std::optional<std::string> heads;

  void declare(OptionSet& options);
  /// Throws UsageError for a list that is none.
  TraceSelection selection() const;
  /// The options of a kind with "layers" and "heads" put in front: lists, or null for all.
  nlohmann::ordered_json with(const nlohmann::ordered_json& fields) const;
};

}  // namespace kvscope::cli

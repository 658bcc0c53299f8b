// kvscope explain TRACE: why the method kept or dropped keys of one query of a recording.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "analysis/kinds/explain_key.hpp"
#include "analysis/options/options.hpp"

namespace kvscope::cli {

/// The options that a question about a recording has beside the method and its budget.
struct ExplainKeyOptions {
  std::optional<std::filesystem::path> trace;
  std::optional<std::filesystem::path> draft;
  std::optional<std::filesystem::path> calibration;
  std::optional<Index> layer;
  std::optional<Index> head;
  std::optional<Index> query;
  std::optional<Index> key;
  Index top = 10;
  bool as_step = false;

  void declare(OptionSet& options);
  /// Prints the answer. `question`: selector, budget, chunk and dense layers; the rest is filled
  /// from the options. Throws UsageError for what is missing, and what look_at_query throws.
  int run(KeyQuestion question, bool json, const std::string& command_line, int n_threads) const;
};

}  // namespace kvscope::cli

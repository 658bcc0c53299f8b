// kvscope cost --shape: cost without a recording, from a model's config.json.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "analysis/cli/frame/common_options.hpp"
#include "analysis/cli/runs/replay_arguments.hpp"
#include "analysis/cost/shape_cost.hpp"
#include "analysis/cost/trace_cost.hpp"
#include "analysis/options/options.hpp"

namespace kvscope::cli {

/// The options that --shape has to itself.
class CostShape {
 public:
  void declare(OptionSet& options);
  bool is_used() const { return shape_.has_value(); }
  /// given: cards, batches, contexts, formats. Writes what was left out to standard error. Throws
  /// UsageError, and what reading a config.json and lists_of_shape throw.
  nlohmann::ordered_json report(const OptionSet& options, const ReplayArguments& replay,
                                const CostOptions& given, const WorkOptions& work) const;

 private:
  Phase phase_of(const OptionSet& options, const ReplayArguments& replay) const;
  std::vector<Budget> budgets_of_run(const ReplayArguments& replay) const;

  std::optional<std::string> shape_;
  std::optional<CostQuestion> question_;
  std::string keys_;
  std::optional<std::filesystem::path> like_;
};

/// The answers, the table over context and batch, and what it rests on.
std::string describe_shape_costs(const nlohmann::ordered_json& report);

}  // namespace kvscope::cli

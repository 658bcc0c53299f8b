// Lists that are values of options: what the library's readers refuse is an error of usage here.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/base/trace_selection.hpp"
#include "analysis/options/options.hpp"
#include "core/selectors/method_spec.hpp"

namespace kvscope::cli {

/// "0,3-5" as {0, 3, 4, 5} (core/base/lists.hpp). `option` is named without its dashes. Throws
/// UsageError.
std::vector<Index> index_list_of(std::string_view text, std::string_view option);

/// The values of --selector as methods (core/selectors/spec_lists.hpp). Throws UsageError.
std::vector<MethodSpec> selectors_of(const std::vector<std::string>& lists);

/// The values of --budget (core/selectors/spec_lists.hpp). Throws UsageError, also for a bare
/// share: "0.1" is no number of tokens.
std::vector<Budget> budgets_of(const std::vector<std::string>& lists);

/// The numbers of a list of counts, as "1,16,64" or "4k:1M", in its order; k = 1024, M = 1024 k.
/// A:B is A, 2A, 4A, ... and B. Throws UsageError, naming the option (without dashes): what is no
/// number of at least 1, a range that does not ascend, a number that is there twice.
std::vector<Index> counts_of(std::string_view list, std::string_view option);

/// What the run can give to methods that need it.
struct MethodNeeds {
  Phase phase = Phase::prefill;
  bool has_draft = false;
  bool has_calibration = false;
  bool has_rotation = true;     // AttentionShape::rotations
  bool has_projection = false;  // AttentionShape::projection
  bool has_like_layers = true;  // those that see everything are of one shape
};

struct MethodList {
  std::vector<MethodSpec> methods;
  /// Sentences: methods that "all" means but the run cannot have, and why.
  std::vector<std::string> left_out;
};

/// The lists of --selector with the word all as every registered method that the run can have and
/// that is not named beside it (with options, or by a preset). Throws UsageError as selectors_of
/// does.
MethodList methods_of(const std::vector<std::string>& lists, const MethodNeeds& needs);

/// --layers and --heads of the analyses that can look at a part of a trace.
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

// "all" among the methods of --selector: every method of the registry as it is by default.
#pragma once

#include <string>
#include <vector>

#include "core/selectors/method_spec.hpp"

namespace kvscope::cli {

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

}  // namespace kvscope::cli

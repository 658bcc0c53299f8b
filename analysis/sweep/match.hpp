// Comparisons at equal measured cost: what is to be met, and the search that turns a method's
// setting until it is.
//
// The quantity is measured, never nominal: keys that were really attended to, forced ones included.
// A page more or less is a step that some methods cannot stand between; then the nearer side is
// taken and the outcome says so.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/selectors/budget_setting.hpp"

namespace kvscope {

enum class MatchQuantity {
  density,  // keys kept per query row / keys that the row sees
  keys,     // keys kept per query row
  bytes,    // read per forward call and layer, by all query heads: scoring, and keys and values
  us,       // predicted microseconds of a forward call in a layer, on a card (analysis/cost)
};

/// A cost that methods are to meet.
struct MatchTarget {
  MatchQuantity quantity = MatchQuantity::density;
  double value = 0.05;

  /// "density=0.05", "keys=128", "bytes=65536". Throws ConfigError with one sentence that names
  /// what is taken: another word, no number, a density outside (0, 1], keys below 1, bytes or
  /// microseconds not above 0.
  static MatchTarget parse(std::string_view text);
  std::string to_string() const;
  friend bool operator==(const MatchTarget&, const MatchTarget&) = default;
};

/// "density=0.05,0.1" and the like: a bare number is of the quantity before it. Throws ConfigError,
/// also for one that comes twice.
std::vector<MatchTarget> parse_matches(const std::vector<std::string>& lists);

/// How near is met: relative to the target.
inline constexpr double kMatchTolerance = 0.01;

/// What a row says of its match.
struct MatchLabels {
  std::string target;   // "density=0.05"; empty: nothing was to be met
  std::string setting;  // "tokens=205"; empty: the method has none
  std::string note;     // why the target is not met; empty: it is
  std::optional<double> reached;
};

/// What the search settled on.
struct MatchOutcome {
  double value = 0.0;  // of the setting
  double reached = 0.0;
  std::string note;    // empty: |reached - target| <= kMatchTolerance * target
  int n_measured = 0;  // how often the cost was measured
};

/// The cost at one value of the setting; throws ConfigError where the method refuses the value.
using MeasureCost = std::function<double(double value)>;

/// Bisection, whose points are interpolated while that divides the range well: the value whose cost
/// is nearest to `target`. Costs should rise (or fall, if the setting does) along the setting;
/// where they waver, the nearest one that was met on the way counts. Throws ConfigError if the
/// method refuses every value.
MatchOutcome search_match(const BudgetSetting& setting, const MatchTarget& target,
                          const MeasureCost& cost,
                          std::optional<double> first_guess = std::nullopt);

/// A method with its setting where its cost is nearest to the target.
struct MatchedMethod {
  MethodAtSetting method;  // empty selector: the method refused every value
  MatchLabels labels;
};

/// What of the contexts a search begins with.
struct MatchContext {
  Index n_keys = 0;        // of the longest
  double n_visible = 0.0;  // keys that a query sees, mean
};

/// Turns the budget setting of `method`, of a recording or inside a running model: `cost` measures
/// a setting, and throws ConfigError where the method refuses it. A method without a setting is
/// returned as it is; labels.note says so, and why a target is not met.
MatchedMethod match_method(const MethodSpec& method, const MatchTarget& target,
                           const MatchContext& context,
                           const std::function<double(const MethodAtSetting&)>& cost);

}  // namespace kvscope

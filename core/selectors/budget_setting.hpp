// The budget setting of a method as written: the one number that makes it keep more or fewer keys,
// which a search for equal cost turns. That is its budget (of a stack, the last stage's), or the
// option that its registry entry declares (SettingRange).
#pragma once

#include <optional>
#include <string>

#include "core/selectors/method_spec.hpp"

namespace kvscope {

/// What is to be run for one number of the setting.
struct MethodAtSetting {
  MethodSpec selector;
  std::optional<Budget> budget;
};

class BudgetSetting {
 public:
  /// `by_share`: of budgets that the method takes in tokens and as a ratio, the ratio (it says the
  /// same for any context); n_keys: of the longest context. Empty if the method has neither a
  /// budget nor a declared setting.
  static std::optional<BudgetSetting> of(const MethodSpec& method, bool by_share, Index n_keys);

  double low() const { return range_.low; }  // the ends of its range
  double high() const { return range_.high; }
  bool falls() const { return range_.falls; }  // a larger number keeps fewer keys
  bool is_whole() const { return range_.is_whole; }
  bool is_log() const { return range_.is_log; }
  /// True if its numbers are keys of one query row: where a search for `keys` may begin.
  bool counts_keys() const { return is_budget() && kind_ == Budget::Kind::tokens; }
  bool is_ratio() const { return is_budget() && kind_ == Budget::Kind::ratio; }

  /// `value` as the setting takes it: inside its range, whole where it must be.
  double rounded(double value) const;
  /// The method at a value that is rounded(). Throws ConfigError where the method refuses it.
  MethodAtSetting at(double value) const;
  /// "tokens=205", "tau=0.713".
  std::string text(double value) const;

 private:
  bool is_budget() const { return range_.option.empty(); }

  MethodSpec method_;
  SettingRange range_;  // without an option: of the budget, of `kind_`
  Budget::Kind kind_ = Budget::Kind::tokens;
};

}  // namespace kvscope

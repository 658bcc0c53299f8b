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

  double low() const { return low_; }  // the ends of its range
  double high() const { return high_; }
  bool falls() const { return falls_; }  // a larger number keeps fewer keys
  bool is_whole() const { return is_whole_; }
  bool is_log() const { return is_log_; }
  /// True if its numbers are keys of one query row: where a search for `keys` may begin.
  bool counts_keys() const { return !option_ && kind_ == Budget::Kind::tokens; }
  bool is_ratio() const { return !option_ && kind_ == Budget::Kind::ratio; }

  /// `value` as the setting takes it: inside its range, whole where it must be.
  double rounded(double value) const;
  /// The method at a value that is rounded(). Throws ConfigError where the method refuses it.
  MethodAtSetting at(double value) const;
  /// "tokens=205", "tau=0.713".
  std::string text(double value) const;

 private:
  MethodSpec method_;
  std::optional<std::string> option_;  // empty: the budget, of `kind_`
  Budget::Kind kind_ = Budget::Kind::tokens;
  double low_ = 0.0;
  double high_ = 1.0;
  bool falls_ = false;
  bool is_whole_ = false;
  bool is_log_ = false;
};

}  // namespace kvscope

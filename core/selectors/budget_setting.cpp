#include "core/selectors/budget_setting.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace kvscope {

namespace {

/// The least share of the attention that a search asks for.
constexpr double kLeastMass = 1e-3;

/// The value of an option of this stage: as written, of its preset, or the default.
std::string value_of(const MethodSpec::Stage& stage, const std::string& option) {
  const SelectorOptions assigned = stage.assignments();
  if (const auto it = assigned.find(option); it != assigned.end()) return it->second;
  const auto known = std::ranges::find(stage.method->options, option, &SelectorOption::name);
  return known == stage.method->options.end() ? std::string() : known->default_value;
}

/// The declared setting of this stage; null if there is none.
const SettingRange* setting_of(const MethodSpec::Stage& stage) {
  for (const SettingRange& setting : stage.method->settings) {
    const bool holds = std::ranges::all_of(
        setting.where, [&](const auto& one) { return value_of(stage, one.first) == one.second; });
    if (holds) return &setting;
  }
  return nullptr;
}

/// Budgets in the order in which a search takes them.
std::optional<Budget::Kind> kind_of(const SelectorCaps& caps, bool by_share) {
  using Kind = Budget::Kind;
  const std::array<Kind, 4> order =
      by_share ? std::array{Kind::ratio, Kind::tokens, Kind::pages, Kind::mass}
               : std::array{Kind::tokens, Kind::ratio, Kind::pages, Kind::mass};
  for (const Kind kind : order) {
    if (std::ranges::find(caps.budgets, kind) != caps.budgets.end()) return kind;
  }
  return std::nullopt;
}

}  // namespace

std::optional<BudgetSetting> BudgetSetting::of(const MethodSpec& method, bool by_share,
                                               Index n_keys) {
  if (method.empty()) return std::nullopt;
  BudgetSetting setting;
  setting.method_ = method;
  if (method.caps().budgets.empty()) {
    const SettingRange* declared = setting_of(method.stages().back());
    if (declared == nullptr) return std::nullopt;
    for (const auto& [option, value] : declared->sets) setting.method_.set(option, value);
    if (!declared->option.empty()) {
      const auto n_takers = std::ranges::count_if(
          method.stages(),
          [&](const MethodSpec::Stage& stage) { return stage.takes(declared->option); });
      if (n_takers > 1) return std::nullopt;  // two stages of a stack would be turned at once
      setting.range_ = *declared;
      return setting;
    }
  }
  const std::optional<Budget::Kind> kind = kind_of(setting.method_.caps(), by_share);
  if (!kind) return std::nullopt;
  setting.kind_ = *kind;
  const auto n = static_cast<double>(std::max<Index>(n_keys, 1));
  switch (*kind) {
    case Budget::Kind::tokens:
    case Budget::Kind::pages:
      setting.range_.low = 1.0;
      setting.range_.high =
          *kind == Budget::Kind::tokens
              ? n
              : std::max(1.0, std::ceil(n / static_cast<double>(setting.method_.caps().page_size)));
      setting.range_.is_whole = setting.range_.is_log = true;
      break;
    case Budget::Kind::ratio:
      setting.range_.low = std::min(1.0 / n, 1.0);
      setting.range_.is_log = true;
      break;
    case Budget::Kind::mass:
      setting.range_.low = kLeastMass;
      break;
  }
  return setting;
}

double BudgetSetting::rounded(double value) const {
  value = std::clamp(value, range_.low, range_.high);
  if (range_.is_whole)
    return std::clamp(std::round(value), std::ceil(range_.low), std::floor(range_.high));
  // six digits: what is printed is what runs
  const double digits = value > 0.0 ? std::pow(10.0, 5.0 - std::floor(std::log10(value))) : 1.0;
  return std::clamp(std::round(value * digits) / digits, range_.low, range_.high);
}

MethodAtSetting BudgetSetting::at(double value) const {
  if (is_budget()) return {method_, Budget{kind_, value}};
  MethodAtSetting setting{method_, std::nullopt};
  if (range_.is_whole) {
    setting.selector.set(range_.option, static_cast<Index>(value));
  } else {
    setting.selector.set(range_.option, fmt::format("{:.6g}", value));
  }
  return setting;
}

std::string BudgetSetting::text(double value) const {
  return is_budget() ? Budget{kind_, value}.to_string()
                     : fmt::format("{}={:.6g}", range_.option, value);
}

}  // namespace kvscope

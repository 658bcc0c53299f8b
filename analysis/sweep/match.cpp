#include "analysis/sweep/match.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/base/measure_layers.hpp"
#include "core/base/error.hpp"
#include "core/base/lists.hpp"
#include "core/base/number_text.hpp"

namespace kvscope {

namespace {

constexpr std::string_view kTaken =
    "expected density=X with 0 < X <= 1 (keys kept of those a query sees), keys=N with N >= 1 "
    "(kept per query), bytes=N with N > 0 (read per call and layer) or us=X with X > 0 (predicted "
    "microseconds of a call in a layer)";

constexpr int kMostMeasured = 40;
constexpr double kCloseEnough = 0.5 * kMatchTolerance;  // where the search ends
constexpr double kNoWidth = 1e-5;                       // of a bracket, relative

/// A number of the setting that was tried; without a cost it was refused.
struct Tried {
  double value = 0.0;
  std::optional<double> cost;
  std::string refusal;
};

/// The search itself: a bracket between a cheap and a dear value, and the nearest value so far.
class Search {
 public:
  Search(const BudgetSetting& setting, const MatchTarget& target, const MeasureCost& cost)
      : setting_(setting), target_(target), cost_(cost) {}

  MatchOutcome run(std::optional<double> first_guess) {
    const double cheap_end = setting_.rounded(setting_.falls() ? setting_.high() : setting_.low());
    const double dear_end = setting_.rounded(setting_.falls() ? setting_.low() : setting_.high());
    try_value(setting_.rounded(first_guess.value_or(middle(cheap_end, dear_end))));
    if (!dear_ && !is_met()) try_value(dear_end);
    if (!cheap_ && !is_met()) try_value(cheap_end);
    while (!is_met() && cheap_ && dear_ && outcome_.n_measured < kMostMeasured) {
      const std::optional<double> next = next_value();
      if (!next) break;
      try_value(*next);
    }
    if (!nearest_)
      throw ConfigError(cheap_ ? cheap_->refusal
                               : std::string("no value of the setting was tried"));
    outcome_.value = nearest_->value;
    outcome_.reached = *nearest_->cost;
    outcome_.note = note();
    return outcome_;
  }

 private:
  /// Where values are halved.
  double place_of(double value) const { return setting_.is_log() ? std::log(value) : value; }
  double value_at(double place) const { return setting_.is_log() ? std::exp(place) : place; }
  double middle(double a, double b) const { return value_at(0.5 * (place_of(a) + place_of(b))); }
  bool is_within(double tolerance) const {
    return nearest_ && std::abs(*nearest_->cost - target_.value) <= tolerance * target_.value;
  }
  bool is_met() const { return is_within(kCloseEnough); }

  void try_value(double value) {
    Tried tried{value, std::nullopt, {}};
    ++outcome_.n_measured;
    try {
      tried.cost = cost_(value);
    } catch (const ConfigError&
                 error) {  // most methods refuse too small numbers; what is refused counts as cheap
      tried.refusal = error.what();
    }
    const auto distance = [&](const Tried& one) { return std::abs(*one.cost - target_.value); };
    if (tried.cost && (!nearest_ || distance(tried) < distance(*nearest_))) nearest_ = tried;
    (tried.cost && *tried.cost >= target_.value ? dear_ : cheap_) = std::move(tried);
  }

  /// The next value strictly inside the bracket; empty if there is none.
  std::optional<double> next_value() {
    const double a = place_of(cheap_->value);
    const double b = place_of(dear_->value);
    const double width = std::abs(b - a);
    if (setting_.is_whole() ? std::abs(dear_->value - cheap_->value) < 1.5
                            : width <= kNoWidth * std::max({1.0, std::abs(a), std::abs(b)})) {
      return std::nullopt;
    }
    double value = middle(cheap_->value, dear_->value);
    const bool divided_well = width <= 0.5 * last_width_;
    if (cheap_->cost && divided_well && *dear_->cost > *cheap_->cost) {
      const double part = (target_.value - *cheap_->cost) / (*dear_->cost - *cheap_->cost);
      double guess = cheap_->value + part * (dear_->value - cheap_->value);
      if (setting_.is_log() && !setting_.counts_keys() && !setting_.is_ratio())
        guess = value_at(a + part * (b - a));
      const double place =
          std::clamp(place_of(guess), std::min(a, b) + 0.02 * width, std::max(a, b) - 0.02 * width);
      value = value_at(place);
    }
    last_width_ = width;
    value = setting_.rounded(value);
    if (value == cheap_->value || value == dear_->value)
      value = setting_.rounded(middle(cheap_->value, dear_->value));
    if (value == cheap_->value || value == dear_->value) {
      if (!setting_.is_whole()) return std::nullopt;
      value = cheap_->value + (dear_->value > cheap_->value ? 1.0 : -1.0);
    }
    return value;
  }

  std::string cost_text(double cost) const {
    return fmt::format("{}={:.4g}", enum_name(target_.quantity), cost);
  }

  std::string note() const {
    if (is_within(kMatchTolerance)) return "";
    const std::string nearest = setting_.text(nearest_->value);
    if (!dear_) {
      return fmt::format("not reached: the most is {} with {}", cost_text(*nearest_->cost),
                         nearest);
    }
    if (!cheap_) {
      return fmt::format("not reached: the least is {} with {}", cost_text(*nearest_->cost),
                         nearest);
    }
    if (!cheap_->cost) {
      return fmt::format("not reached: the least is {} with {}; {} is refused ({})",
                         cost_text(*nearest_->cost), nearest, setting_.text(cheap_->value),
                         cheap_->refusal);
    }
    return fmt::format("not reached: it steps from {} with {} to {} with {}",
                       cost_text(*cheap_->cost), setting_.text(cheap_->value),
                       cost_text(*dear_->cost), setting_.text(dear_->value));
  }

  const BudgetSetting& setting_;
  const MatchTarget& target_;
  const MeasureCost& cost_;
  std::optional<Tried> cheap_;
  std::optional<Tried> dear_;
  std::optional<Tried> nearest_;
  double last_width_ = std::numeric_limits<double>::infinity();
  MatchOutcome outcome_;
};

std::optional<double> first_guess(const BudgetSetting& setting, const MatchTarget& target,
                                  double n_visible) {
  const bool counts_keys =
      target.quantity == MatchQuantity::density || target.quantity == MatchQuantity::keys;
  if (!counts_keys || !(n_visible > 0.0)) return std::nullopt;
  const bool is_share = target.quantity == MatchQuantity::density;
  const double keys = is_share ? target.value * n_visible : target.value;
  if (setting.counts_keys()) return keys;
  if (setting.is_ratio()) return keys / n_visible;
  return std::nullopt;
}

}  // namespace

MatchTarget MatchTarget::parse(std::string_view text) {
  const auto fail = [&]() -> MatchTarget { throw ConfigError("match \"{}\": {}", text, kTaken); };
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos) return fail();
  MatchTarget target;
  const auto quantity = enum_from_name<MatchQuantity>(text.substr(0, equals));
  const auto value = number_from<double>(text.substr(equals + 1));
  if (!quantity || !value || !std::isfinite(*value)) return fail();
  target.quantity = *quantity;
  target.value = *value;
  if (target.value <= 0.0 || (target.quantity == MatchQuantity::density && target.value > 1.0) ||
      (target.quantity == MatchQuantity::keys && target.value < 1.0)) {
    return fail();
  }
  return target;
}

std::string MatchTarget::to_string() const {
  return fmt::format("{}={}", enum_name(quantity), value);
}

std::vector<MatchTarget> parse_matches(const std::vector<std::string>& lists) {
  std::vector<MatchTarget> targets;
  for (const std::string& list : lists) {
    std::string quantity;
    for (const std::string& part : split_words(list, ',')) {
      const std::size_t equals = part.find('=');
      if (equals != std::string::npos) quantity = part.substr(0, equals);
      targets.push_back(MatchTarget::parse(equals == std::string::npos && !quantity.empty()
                                               ? fmt::format("{}={}", quantity, part)
                                               : part));
      if (std::ranges::count(targets, targets.back()) > 1)
        throw ConfigError("match: {} is given twice", targets.back().to_string());
    }
  }
  return targets;
}

MatchOutcome search_match(const BudgetSetting& setting, const MatchTarget& target,
                          const MeasureCost& cost, std::optional<double> first_guess) {
  return Search(setting, target, cost).run(first_guess);
}

MatchedMethod match_method(const MethodSpec& method, const MatchTarget& target,
                           const MatchContext& context,
                           const std::function<double(const MethodAtSetting&)>& cost) {
  MatchedMethod matched;
  matched.labels.target = target.to_string();
  const bool by_share = target.quantity == MatchQuantity::density;
  const std::optional<BudgetSetting> setting = BudgetSetting::of(method, by_share, context.n_keys);
  if (!setting) {
    matched.method = {method, std::nullopt};
    matched.labels.note =
        "no budget setting: it takes no budget, and no option of it is declared to set its cost";
    return matched;
  }
  try {
    const MatchOutcome outcome = search_match(
        *setting, target, [&](double value) { return cost(setting->at(value)); },
        first_guess(*setting, target, context.n_visible));
    matched.method = setting->at(outcome.value);
    matched.labels.setting = setting->text(outcome.value);
    matched.labels.note = outcome.note;
    matched.labels.reached = outcome.reached;
  } catch (const ConfigError& error) {
    matched.labels.note = fmt::format("refused: {}", error.what());
  }
  return matched;
}

}  // namespace kvscope

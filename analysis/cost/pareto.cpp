#include "analysis/cost/pareto.hpp"

#include <tuple>

#include "analysis/base/kit.hpp"
#include "core/base/number_text.hpp"

namespace kvscope {

std::string ParetoPoint::text() const {
  return std::isnan(budget) ? selector : fmt::format("{} {}={}", selector, budget_kind, budget);
}

ParetoFront::ParetoFront(std::vector<ParetoPoint> points) : points_(std::move(points)) {
  std::ranges::stable_sort(points_, [](const ParetoPoint& a, const ParetoPoint& b) {
    return std::tie(a.us, a.loss) < std::tie(b.us, b.loss);
  });
}

OnFront ParetoFront::on_front(std::size_t i) const {
  const ParetoPoint& point = points_[i];
  if (point.is_reference) return OnFront::reference;
  OnFront found = OnFront::yes;
  for (std::size_t j = 0; j < points_.size() && points_[j].us <= point.us; ++j) {
    if (j == i || points_[j].is_reference) continue;
    if (points_[j].high < point.low) return OnFront::no;
    // also where an interval is not known
    if (!(points_[j].low >= point.high)) found = OnFront::undecided;
  }
  return found;
}

ParetoFront::Answer ParetoFront::at_loss(double limit) const {
  Answer answer;
  for (std::size_t i = 0; i < points_.size(); ++i) {
    const ParetoPoint& point = points_[i];
    if (point.is_reference) continue;
    const bool keeps = point.high <= limit;
    if (!answer.best && keeps) answer.best = i;
    if (!answer.best && !(point.low > limit)) answer.rivals.push_back(i);
    if (keeps && point.us > point.dense_us &&
        (!answer.later || point.break_even < points_[*answer.later].break_even) &&
        !std::isnan(point.break_even))
      answer.later = i;
  }
  return answer;
}

std::string ParetoFront::with_numbers(std::size_t i, std::string_view unit) const {
  const ParetoPoint& point = points_[i];
  const auto shown = [](double share) { return number_text(100.0 * share, 2); };
  std::string text =
      fmt::format("{} ({} [{}, {}]{}, {} times as fast as dense", point.text(), shown(point.loss),
                  shown(point.low), shown(point.high), unit, number_text(point.speedup(), 3));
  if (!std::isnan(point.call_speedup))
    text += fmt::format(", the whole call {} times", number_text(point.call_speedup, 3));
  return text + ")";
}

std::string ParetoFront::answer(double limit, std::string_view head, std::string_view unit) const {
  const Answer found = at_loss(limit);
  std::string text = std::string(head) + ": ";
  if (!found.best) {
    text += "nothing is sure to keep to it";
  } else if (points_[*found.best].selector == "full") {
    text += "full attention, since nothing that is sure to keep to it is faster";
  } else {
    text += with_numbers(*found.best, unit);
  }
  std::vector<std::string> rivals;
  for (const std::size_t i : found.rivals) rivals.push_back(with_numbers(i, unit));
  if (!rivals.empty())
    text += fmt::format("; as fast or faster, and not known to keep to it or not: {}",
                        fmt::join(rivals, ", "));
  if (found.later)
    text +=
        fmt::format("; slower than dense here, and pays from {} tokens: {}",
                    number_text(points_[*found.later].break_even, 7), points_[*found.later].text());
  return text + ".";
}

}  // namespace kvscope

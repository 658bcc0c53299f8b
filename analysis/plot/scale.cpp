#include "analysis/plot/scale.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "core/base/nan.hpp"

namespace kvscope::plot {

namespace {

constexpr std::string_view kMinus = "\u2212";

/// ASCII minus to the sign that is as wide as a plus.
std::string with_minus(std::string text) {
  return text.starts_with('-') ? std::string(kMinus) + text.substr(1) : text;
}

std::string fixed(double value, int decimals) {
  const std::string text = fmt::format("{:.{}f}", value, decimals);
  const bool is_zero = text.find_first_not_of("-0.") == std::string::npos;
  return is_zero && text.starts_with('-') ? text.substr(1) : with_minus(text);
}

int decimals_of_step(double step) {
  for (int decimals = 0; decimals < 12; ++decimals) {
    const double scaled = step * std::pow(10.0, decimals);
    if (std::abs(scaled - std::round(scaled)) < 1e-6 * scaled) return decimals;
  }
  return 12;
}

/// Large and tiny numbers of a linear axis would need many digits; they get a power of ten.
std::string plain_number(double value, int decimals) {
  const double size = std::abs(value);
  if (size >= 1e6 || (size > 0.0 && decimals > 5)) {
    const int exponent = static_cast<int>(std::floor(std::log10(size) + 1e-12));
    const double mantissa = value / std::pow(10.0, exponent);
    const std::string digits = with_minus(fmt::format("{:.3g}", mantissa));
    return digits == "1"
               ? fmt::format("$10^{{{}}}$", with_minus(fmt::format("{}", exponent)))
               : fmt::format("${}×10^{{{}}}$", digits, with_minus(fmt::format("{}", exponent)));
  }
  return fixed(value, decimals);
}

std::string with_unit(double value, double base, std::initializer_list<std::string_view> units) {
  auto unit = units.begin();
  while (std::abs(value) >= base && unit + 1 != units.end()) {
    value /= base;
    ++unit;
  }
  return with_minus(fmt::format("{:.4g}", value)) + std::string(*unit);
}

std::string label_of(double value, TickFormat format, int decimals) {
  switch (format) {
    case TickFormat::number:
      return plain_number(value, decimals);
    case TickFormat::percent:
      return fixed(100.0 * value, std::max(0, decimals - 2)) + "%";
    case TickFormat::tokens: {
      // k = 1024 only where it comes out even, and from 16k on: what stands before it (2048, 4096,
      // 8192) says that k is not 1000
      const bool even = value >= 16384.0 && std::fmod(value, 1024.0) == 0.0;
      return even ? with_unit(value, 1024.0, {"", "k", "M"}) : plain_number(value, decimals);
    }
    case TickFormat::bytes:
      return with_unit(value, 1024.0, {" B", " KiB", " MiB", " GiB", " TiB"});
  }
  return {};
}

std::vector<Tick> linear_ticks(const Axis& axis, Range range, int n_wanted) {
  const double width = range.high - range.low;
  const double rough = width / std::max(1, n_wanted);
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10.0 * power;
  for (double factor : {1.0, 2.0, 2.5, 5.0}) {
    if (factor * power >= rough * (1.0 - 1e-9)) {
      step = factor * power;
      break;
    }
  }
  if (axis.format == TickFormat::bytes) step = std::exp2(std::ceil(std::log2(rough) - 1e-9));
  if (axis.whole_numbers) step = std::max(1.0, step == 2.5 ? 5.0 : step);
  if (axis.whole_numbers && step != std::floor(step)) step = std::ceil(step);
  const int decimals = decimals_of_step(step);
  std::vector<Tick> ticks;
  const double slack = 1e-9 * width;
  for (double i = std::ceil((range.low - slack) / step); i * step <= range.high + slack; i += 1.0) {
    const double at = i * step + 0.0;  // no minus zero
    ticks.push_back({at, label_of(at, axis.format, decimals)});
    if (ticks.size() > 1000) break;
  }
  // a short axis with one number tells no scale
  const bool finer = ticks.size() < 2 && width > 0.0 && n_wanted < 8 && !axis.whole_numbers;
  return finer ? linear_ticks(axis, range, n_wanted + 1) : ticks;
}

std::vector<Tick> log_ticks(const Axis& axis, Range range, int n_wanted, double base) {
  const double low = std::log(range.low) / std::log(base);
  const double high = std::log(range.high) / std::log(base);
  const double first = std::ceil(low - 1e-9);
  const double last = std::floor(high + 1e-9);
  std::vector<double> at;
  const double stride = std::max(1.0, std::ceil((last - first + 1.0) / std::max(1, n_wanted)));
  for (double e = std::ceil(first / stride) * stride; e <= last; e += stride) at.push_back(e);
  std::vector<Tick> ticks;
  const bool few = base == 10.0 && at.size() < 3 && stride == 1.0;
  // less than a power apart, an axis would have one number or none
  if ((few && high - low < 0.6) || (base == 2.0 && at.size() < 2))
    return linear_ticks(axis, range, n_wanted);
  if (few) {
    for (double e = first - 1.0; e <= last + 1.0; e += 1.0) {
      for (double factor : {1.0, 2.0, 5.0}) {
        const double value = factor * std::pow(10.0, e);
        if (value < range.low * (1 - 1e-9) || value > range.high * (1 + 1e-9)) continue;
        ticks.push_back({value, label_of(value, axis.format, std::max(0, static_cast<int>(-e)))});
      }
    }
    return ticks;
  }
  const bool small = first >= -3 && last <= 4;
  for (double e : at) {
    const double value = std::pow(base, e);
    if (base == 10.0 && axis.format == TickFormat::number && !small) {
      ticks.push_back({value, fmt::format("$10^{{{}}}$", with_minus(fmt::format("{}", e)))});
    } else {
      const int decimals = e < 0 ? static_cast<int>(-e) : 0;
      ticks.push_back({value, label_of(value, axis.format, decimals)});
    }
  }
  return ticks;
}

}  // namespace

Scale::Scale(ScaleKind kind, Range range, bool reversed)
    : kind_(kind), range_(range), reversed_(reversed) {
  low_ = bend(range.low);
  high_ = bend(range.high);
}

double Scale::bend(double value) const {
  if (kind_ == ScaleKind::linear) return value;
  return value > 0.0 ? std::log10(value) : kNan;
}

double Scale::unbend(double bent) const {
  return kind_ == ScaleKind::linear ? bent : std::pow(10.0, bent);
}

double Scale::to_unit(double value) const {
  const double unit = (bend(value) - low_) / (high_ - low_);
  return reversed_ ? 1.0 - unit : unit;
}

double Scale::from_unit(double unit) const {
  return unbend(low_ + (reversed_ ? 1.0 - unit : unit) * (high_ - low_));
}

void Extent::add(double value) {
  if (!std::isfinite(value) || (positive_only_ && value <= 0.0)) return;
  low_ = any_ ? std::min(low_, value) : value;
  high_ = any_ ? std::max(high_, value) : value;
  any_ = true;
}

Range Extent::range() const {
  if (low_ < high_) return {low_, high_};
  if (!any_) return positive_only_ ? Range{0.1, 1.0} : Range{0.0, 1.0};
  if (positive_only_) return {low_ / 2.0, low_ * 2.0};
  const double room = low_ == 0.0 ? 1.0 : 0.1 * std::abs(low_);
  return {low_ - room, low_ + room};
}

Range padded(Range range, ScaleKind kind, bool keep_zero) {
  constexpr double kRoom = 0.04;
  const Scale scale(kind, range);
  Range wide{scale.from_unit(-kRoom), scale.from_unit(1.0 + kRoom)};
  if (kind != ScaleKind::linear || !keep_zero) return wide;
  if (range.low >= 0.0 && wide.low < 0.0) wide.low = 0.0;
  if (range.high <= 0.0 && wide.high > 0.0) wide.high = 0.0;
  return wide;
}

std::vector<Tick> choose_ticks(const Axis& axis, Range range, int n_wanted) {
  if (!axis.ticks.empty()) {
    std::vector<Tick> inside;
    for (const Tick& tick : axis.ticks) {
      if (tick.at >= range.low && tick.at <= range.high) inside.push_back(tick);
    }
    return inside;
  }
  switch (axis.scale) {
    case ScaleKind::linear:
      return linear_ticks(axis, range, n_wanted);
    case ScaleKind::log10:
      return log_ticks(axis, range, n_wanted, 10.0);
    case ScaleKind::log2:
      return log_ticks(axis, range, n_wanted, 2.0);
  }
  return {};
}

std::vector<double> minor_ticks(const Axis& axis, Range range) {
  std::vector<double> at;
  if (axis.scale != ScaleKind::log10 || !axis.ticks.empty()) return at;
  if (std::log10(range.high / range.low) > 8.0) return at;
  for (double e = std::floor(std::log10(range.low)); std::pow(10.0, e) <= range.high; e += 1.0) {
    for (int factor = 2; factor <= 9; ++factor) {
      const double value = factor * std::pow(10.0, e);
      if (value >= range.low && value <= range.high) at.push_back(value);
    }
  }
  return at;
}

std::string tick_text(double value, TickFormat format) {
  const bool is_percent = format == TickFormat::percent;
  const double shown = is_percent ? 100.0 * value : value;
  const double size = std::abs(shown);
  const bool is_whole = std::abs(shown - std::round(shown)) < (is_percent ? 1e-4 : 1e-300);
  const int decimals = size >= 100.0 || is_whole ? 0 : size >= 1.0 ? 1 : 2;
  return label_of(value, format, is_percent ? decimals + 2 : decimals);
}

}  // namespace kvscope::plot

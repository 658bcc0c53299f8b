#include "core/base/number_text.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace kvscope {

std::optional<std::int64_t> count_from(std::string_view text) {
  std::int64_t unit = 1;
  if (text.ends_with('k') || text.ends_with('K')) unit = 1024;
  if (text.ends_with('M')) unit = 1024 * 1024;
  if (unit > 1) text.remove_suffix(1);
  const auto n = number_from<std::int64_t>(text);
  using Limits = std::numeric_limits<std::int64_t>;
  if (!n || *n > Limits::max() / unit || *n < Limits::min() / unit) return std::nullopt;
  return *n * unit;
}

std::string bytes_text(double n_bytes) {
  static constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
  int unit = 0;
  while (n_bytes >= 1024.0 && unit < 5) {
    n_bytes /= 1024.0;
    ++unit;
  }
  if (unit == 0) return fmt::format("{:.0f} bytes", n_bytes);
  return fmt::format("{:.{}f} {}", n_bytes, n_bytes < 9.95 ? 1 : 0, kUnits[unit]);
}

std::string seconds_text(double seconds) {
  if (seconds < 0.9995) return fmt::format("{:.0f} ms", seconds * 1e3);
  if (seconds < 60.0) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<long long>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole / 60 % 60);
}

std::string number_text(double value, int digits) {
  if (std::isnan(value)) return "-";
  if (value == std::floor(value) && std::abs(value) < 1e15) return fmt::format("{:.0f}", value);
  return fmt::format("{:.{}g}", value, digits);
}

std::string percent_text(double share) {
  if (std::isnan(share)) return "-";
  return fmt::format("{:.1f} %", std::abs(share) < 0.0005 ? 0.0 : 100.0 * share);
}

}  // namespace kvscope

#include "analysis/cli/unit_status.hpp"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <vector>

#include "analysis/units/unit_file.hpp"
#include "analysis/units/unit_folder.hpp"

namespace kvscope::cli {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// Units a second, from the times of the last ones; 0 if there are too few, or if none was finished
/// for ten times as long as one took.
double rate_of(const UnitFolder& units) {
  constexpr std::size_t kMost = 100;
  constexpr double kPatience = 10.0;
  constexpr double kLeastPatience = 60.0;  // seconds
  std::vector<fs::file_time_type> times;
  for (const std::size_t unit : units.done) {
    std::error_code error;
    const auto time =
        fs::last_write_time(unit_file(units.folder, unit_id(units.hash, unit)), error);
    if (!error) times.push_back(time);
  }
  std::sort(times.begin(), times.end());
  if (times.size() > kMost) times.erase(times.begin(), times.end() - kMost);
  if (times.size() < 3) return 0.0;
  const auto seconds = [](fs::file_time_type::duration time) {
    return std::chrono::duration<double>(time).count();
  };
  const double span = seconds(times.back() - times.front());
  const double each = span / static_cast<double>(times.size() - 1);
  const double since = seconds(fs::file_time_type::clock::now() - times.back());
  if (each <= 0.0 || since > std::max(kLeastPatience, kPatience * each)) return 0.0;
  return 1.0 / each;
}

}  // namespace

Json unit_status(const fs::path& folder) {
  const UnitFolder units = read_unit_folder(folder);
  const double rate = units.n_missing > 0 ? rate_of(units) : 0.0;
  Json failed = Json::array();
  for (const FailedUnit& unit : units.failed)
    failed.push_back({{"id", unit.id}, {"failure", unit.sentence}});
  return {{"what", "units"},
          {"folder", folder.string()},
          {"command", units.command},
          {"version", units.version},
          {"work", units.hash},
          {"n_units", units.n_units},
          {"done", units.done.size()},
          {"missing", units.n_missing},
          {"failed", units.failed.size()},
          {"units_per_hour", rate > 0.0 ? Json(3600.0 * rate) : Json(nullptr)},
          {"seconds_left",
           rate > 0.0 ? Json(static_cast<double>(units.n_missing) / rate) : Json(nullptr)},
          {"failed_units", failed},
          {"missing_units", missing_units(units, units.n_missing)}};
}

}  // namespace kvscope::cli

#include "analysis/cli/unit_status.hpp"

#include "analysis/units/unit_file.hpp"
#include "analysis/units/unit_folder.hpp"
#include "core/base/json.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

Json unit_status(const fs::path& folder) {
  const UnitFolder units = read_unit_folder(folder);
  std::vector<fs::path> files;
  for (const std::size_t unit : units.done)
    files.push_back(unit_file(units.folder, unit_id(units.hash, unit)));
  const double rate = units.n_missing > 0 ? finished_per_second(files) : 0.0;
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

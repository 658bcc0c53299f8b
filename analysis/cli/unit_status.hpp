// How far the work in a folder of units is: for people, and for schedulers.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

namespace kvscope::cli {

/// {"what": "units", "folder", "command", "version", "work", "n_units", "done", "missing",
/// "failed", "units_per_hour", "seconds_left", "failed_units": [{"id", "failure"}],
/// "missing_units": [ids]}.
/// Rate and time left follow from when the last units were finished; null if nothing is missing or
/// nobody seems to work. Throws as read_unit_folder.
nlohmann::ordered_json unit_status(const std::filesystem::path& folder);

}  // namespace kvscope::cli

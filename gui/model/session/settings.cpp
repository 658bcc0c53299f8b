#include "gui/model/session/settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "core/base/error.hpp"
#include "core/base/fields_json.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/new_file.hpp"
#include "core/base/whole_file.hpp"

namespace kvscope::gui {

namespace fs = std::filesystem;

namespace {
constexpr std::size_t kMostRecent = 12;

/// KVSCOPE_CONFIG, else our part of a folder of the desktop's; empty: there is no home.
fs::path own_folder(const char* variable, const char* in_home) {
  const auto value_of = [](const char* name) {
    const char* const value = std::getenv(name);
    return fs::path(value == nullptr ? "" : value);
  };
  if (const fs::path own = value_of("KVSCOPE_CONFIG"); !own.empty()) return own;
  if (const fs::path of_desktop = value_of(variable); !of_desktop.empty())
    return of_desktop / "kvscope";
  const fs::path home = value_of("HOME");
  return home.empty() ? home : home / in_home / "kvscope";
}
}  // namespace

void Settings::add_recent(const fs::path& file) {
  const std::string name = fs::absolute(file).string();  // the next start is in another folder
  std::erase(recent, name);
  std::erase(recent, name + ".part");  // what it was while it was recorded
  recent.insert(recent.begin(), name);
  if (recent.size() > kMostRecent) recent.resize(kMostRecent);
}

fs::path settings_file() {
  const fs::path folder = own_folder("XDG_CONFIG_HOME", ".config");
  return folder.empty() ? folder : folder / "explorer.json";
}

fs::path cache_folder(std::string_view of) {
  const fs::path folder = own_folder("XDG_CACHE_HOME", ".cache");
  return folder.empty() ? folder : folder / of;
}

constexpr std::size_t kMaxSettingsBytes = std::size_t{16} << 20;

Settings load_settings(const fs::path& file) {
  Settings settings;
  std::error_code error;
  if (file.empty() || !fs::exists(file, error)) return settings;
  const std::string text = read_regular_file(file, kMaxSettingsBytes);
  const std::string where =
      fmt::format("{}: not the settings of kvscope-explorer; delete it to start with the defaults",
                  file.string());
  const Json json = parse_ordered_json(text, where);
  if (!json.is_object()) throw FormatError(where);
  fields_from_json(json, settings);
  check_fields(settings);
  if (json.contains("recent") && json["recent"].is_array()) {
    for (const Json& path : json["recent"]) {
      if (path.is_string()) settings.recent.push_back(path.get<std::string>());
    }
  }
  if (json.contains("arrangements") && json["arrangements"].is_object()) {
    for (const auto& [name, place] : json["arrangements"].items())
      settings.arrangements[name] = place_from_json(place);
  }
  return settings;
}

void save_settings(const Settings& settings, const fs::path& file) {
  if (file.empty()) return;
  Json json = fields_to_json(settings);
  json["recent"] = settings.recent;
  json["arrangements"] = Json::object();
  for (const auto& [name, place] : settings.arrangements)
    json["arrangements"][name] = to_json(place);
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  try {
    write_new_file(file, json_text(json, 2) + "\n", /*overwrite=*/true);
  } catch (const IoError& problem) {
    throw IoError("the settings are not saved: {}", problem.what());
  }
}

}  // namespace kvscope::gui

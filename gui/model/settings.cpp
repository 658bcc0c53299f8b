#include "gui/model/settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "gui/model/json_fields.hpp"

namespace kvscope::gui {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {
constexpr std::size_t kMostRecent = 12;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}
}  // namespace

void Settings::add_recent(const fs::path& file) {
  std::erase(recent, file.string());
  recent.insert(recent.begin(), file.string());
  if (recent.size() > kMostRecent) recent.resize(kMostRecent);
}

fs::path settings_file() {
  if (const auto folder = variable("KVSCOPE_CONFIG"); !folder.empty())
    return fs::path(folder) / "explorer.json";
  if (const auto folder = variable("XDG_CONFIG_HOME"); !folder.empty())
    return fs::path(folder) / "kvscope" / "explorer.json";
  if (const auto home = variable("HOME"); !home.empty())
    return fs::path(home) / ".config" / "kvscope" / "explorer.json";
  return {};
}

Settings load_settings(const fs::path& file) {
  Settings settings;
  std::error_code error;
  if (file.empty() || !fs::exists(file, error)) return settings;
  std::ifstream in(file, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const std::string where = fmt::format(
      "{}: not the settings of kvscope-explorer; delete it to start with the defaults",
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
  const fs::path part = file.string() + ".part";
  std::ofstream out(part, std::ios::binary);
  out << json.dump(2) << '\n';
  out.close();
  if (out) fs::rename(part, file, error);
  if (!out || error) {
    fs::remove(part, error);
    throw IoError(fmt::format(
        "cannot write the settings to {}: is the folder writable, the disk full?", file.string()));
  }
}

}  // namespace kvscope::gui

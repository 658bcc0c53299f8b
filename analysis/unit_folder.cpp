#include "analysis/unit_folder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "analysis/checked_lines.hpp"
#include "analysis/same_weights.hpp"
#include "core/base/error.hpp"
#include "core/base/new_file.hpp"
#include "core/base/number_text.hpp"
#include "core/base/version.hpp"

namespace kvscope {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::size_t kHashDigits = 16;
constexpr std::size_t kMostUnits = 100'000'000;
constexpr std::size_t kShown = 5;  // missing units that a sentence names
constexpr std::string_view kEnding = ".unit";

fs::path file_of(const fs::path& folder, const std::string& id) {
  return folder / (id + std::string(kEnding));
}

/// A unit's file as read.
struct UnitFile {
  Json about;  // the first line
  Json line;   // of the journal
};

UnitFile read_unit(const fs::path& file) {
  UnitFile unit;
  std::size_t n_lines = 0;
  read_checked_lines(file, "unit", [&](const Json& line, bool is_first) {
    ++n_lines;
    if (!is_first) {
      unit.line = line;
      return;
    }
    if (line.at("kvscope_unit").get<int>() != 1) throw ConfigError("a newer version of the format");
    unit.about = line;
  });
  if (n_lines != 2) {
    throw FormatError(
        fmt::format("{}: expected two lines, what the unit is and its result, found {}",
                    file.string(), n_lines));
  }
  return unit;
}

std::string hash_of(std::string_view command, const std::string& version, const Json& header) {
  return config_checksum(Json{{"command", command}, {"version", version}, {"header", header}});
}

/// The files of units in a folder, sorted. Throws IoError if it cannot be read.
std::vector<fs::path> unit_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (auto entry = fs::directory_iterator(folder, error);
       !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (entry->path().extension() == kEnding) files.push_back(entry->path());
  }
  if (error)
    throw IoError(fmt::format("cannot read the folder {}: {}", folder.string(), error.message()));
  std::sort(files.begin(), files.end());
  return files;
}

/// The numbers of the units there whose ids begin with the hash, ascending.
std::vector<std::size_t> numbers_of(const fs::path& folder, const std::string& hash) {
  std::vector<std::size_t> numbers;
  for (const fs::path& file : unit_files(folder)) {
    const std::string id = file.stem().string();
    if (!id.starts_with(hash + "-")) continue;
    if (const auto number = number_from<std::size_t>(id.substr(hash.size() + 1)))
      numbers.push_back(*number);
  }
  return numbers;
}

/// Which weights a unit was made with; null if it does not say, or cannot be read.
Json weights_in(const fs::path& file) {
  try {
    return read_unit(file).about.value("weights", Json());
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

void seal(UnitWork& work) {
  work.hash = hash_of(work.command, writer_name(), work.header);
}

std::string unit_id(std::string_view work_hash, std::size_t unit) {
  return fmt::format("{}-{:06}", work_hash, unit);
}

std::size_t unit_of_id(const UnitWork& work, std::string_view id) {
  const std::string& hash = work.hash;
  const std::string_view digits = id.substr(std::min(kHashDigits + 1, id.size()));
  const auto unit = number_from<std::size_t>(digits);
  const bool is_hash =
      id.size() > kHashDigits && id[kHashDigits] == '-' &&
      id.substr(0, kHashDigits).find_first_not_of("0123456789abcdef") == std::string_view::npos;
  if (!is_hash || !unit || unit_id(id.substr(0, kHashDigits), *unit) != id) {
    throw ConfigError(fmt::format(
        "\"{}\" is no unit: expected an id as {} (--list-units names them)", id, unit_id(hash, 0)));
  }
  if (!id.starts_with(hash)) {
    throw ConfigError(fmt::format(
        "unit {} is of other inputs, options or another version: those of this command begin "
        "with {}",
        id, hash));
  }
  if (*unit >= work.n_units) {
    throw ConfigError(
        fmt::format("unit {} does not exist: this command has {} units", id, work.n_units));
  }
  return *unit;
}

bool has_unit(const fs::path& folder, const std::string& id) {
  const fs::path file = file_of(folder, id);
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return false;
  try {
    const UnitFile unit = read_unit(file);
    return unit_id(unit.about.at("work").get<std::string>(), unit.about.at("unit")) == id;
  } catch (const Error&) {
    return false;  // damaged on the disk: made again
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

void do_unit_file(const UnitWork& work, std::size_t unit, const fs::path& folder,
                  const ProgressFn& progress, std::stop_token stop) {
  const std::string id = unit_id(work.hash, unit);
  if (has_unit(folder, id)) return;
  Json about = {{"kvscope_unit", 1}, {"command", work.command}, {"version", writer_name()},
                {"work", work.hash}, {"n_units", work.n_units}, {"unit", unit}};
  if (!work.weights.is_null()) about["weights"] = work.weights;
  if (unit == 0) {
    about["words"] = work.words;
    about["header"] = work.header;
  }
  const Json line = work.run(unit, progress, stop);
  std::error_code error;
  fs::create_directory(folder, error);
  if (error && !fs::is_directory(folder))
    throw IoError(fmt::format("cannot make the folder {}: {}", folder.string(), error.message()));
  write_new_file(file_of(folder, id), checked_line(about) + checked_line(line),
                 /*overwrite=*/true);
}

UnitFolder read_unit_folder(const fs::path& folder) {
  const std::vector<fs::path> files = unit_files(folder);
  if (files.empty()) {
    throw FormatError(
        fmt::format("{} holds no units: expected files that --unit ID --out {} writes",
                    folder.string(), folder.string()));
  }
  UnitFolder units;
  units.folder = folder;
  Json weights;  // of the first
  std::vector<std::size_t> found;
  for (const fs::path& file : files) {
    const Json about = read_unit(file).about;
    try {
      const auto command = about.at("command").get<std::string>();
      const auto version = about.at("version").get<std::string>();
      const auto hash = about.at("work").get<std::string>();
      const auto n_units = about.at("n_units").get<std::size_t>();
      const auto unit = about.at("unit").get<std::size_t>();
      if (file.stem() != unit_id(hash, unit)) {
        throw FormatError(fmt::format("{}: expected the file to be called {}{}, as what it holds",
                                      file.string(), unit_id(hash, unit), kEnding));
      }
      if (units.n_units == 0) {
        units.command = command;
        units.version = version;
        units.hash = hash;
        units.n_units = n_units;
        weights = about.value("weights", Json());
        if (n_units == 0 || n_units > kMostUnits)
          throw ConfigError("a number of units that cannot be");
      }
      if (version != units.version) {
        throw ConfigError(
            fmt::format("{} holds units of {} and of {}: expected those of one version",
                        folder.string(), units.version, version));
      }
      if (hash != units.hash || command != units.command || n_units != units.n_units) {
        if (command == units.command)
          require_same_weights(about.value("weights", Json()), weights, file.string(), found,
                               "units of one model make a result");
        throw ConfigError(fmt::format("{} holds units of different inputs or options: {} and {}",
                                      folder.string(), files.front().filename().string(),
                                      file.filename().string()));
      }
      if (unit >= n_units)
        throw FormatError(fmt::format("{}: a unit beyond the last", file.string()));
      found.push_back(unit);
      if (unit != 0) continue;
      units.words = about.at("words").get<std::vector<std::string>>();
      units.header = about.at("header");
      if (hash_of(command, version, units.header) != hash) {
        throw FormatError(
            fmt::format("{}: what decides the numbers is not what its name says", file.string()));
      }
    } catch (const nlohmann::json::exception& wrong) {
      throw FormatError(
          fmt::format("{}: not what a unit's file says: {}", file.string(), wrong.what()));
    }
  }
  for (std::size_t unit = 0, next = 0; unit < units.n_units; ++unit) {
    if (next < found.size() && found[next] == unit && ++next > 0) continue;
    if (units.n_missing++ < kShown) units.missing.push_back(unit_id(units.hash, unit));
  }
  return units;
}

void require_no_other_units(const UnitWork& work, const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder, error)) return;
  for (const fs::path& file : unit_files(folder)) {
    const std::string name = file.filename().string();
    if (name.starts_with(work.hash + "-")) continue;
    require_same_weights(work.weights, weights_in(file), folder.string(),
                         numbers_of(folder, name.substr(0, kHashDigits)),
                         "name another folder with --units, or remove this one");
    throw ConfigError(fmt::format(
        "{} holds units of other inputs, options or another version: {}; name another folder with "
        "--units, or remove this one",
        folder.string(), file.filename().string()));
  }
}

void require_all_units(const UnitFolder& units, std::string_view who) {
  if (units.n_missing == 0) return;
  throw ConfigError(fmt::format("{}: {} of {} units are missing from {}: {}{}", who,
                                units.n_missing, units.n_units, units.folder.string(),
                                fmt::join(units.missing, ", "),
                                units.n_missing > units.missing.size() ? ", ..." : ""));
}

void write_journal(const UnitFolder& units, const fs::path& journal) {
  require_all_units(units, "journal");
  CheckedLineWriter lines(journal);
  lines.write(units.header);
  for (std::size_t unit = 0; unit < units.n_units; ++unit)
    lines.write(read_unit(file_of(units.folder, unit_id(units.hash, unit))).line);
}

void remove_units(const UnitFolder& units) {
  std::vector<fs::path> files;
  std::error_code error;
  for (auto entry = fs::directory_iterator(units.folder, error);
       !error && entry != fs::directory_iterator(); entry.increment(error)) {
    // Also what a worker was writing when SIGKILL ended it, and what a killed engine left.
    const std::string name = entry->path().filename().string();
    const bool is_ours =
        std::ranges::any_of(std::array<std::string_view, 3>{units.hash, kUnitListStem, kSlurmStem},
                            [&](std::string_view stem) { return name.starts_with(stem); });
    if (is_ours) files.push_back(entry->path());
  }
  for (const fs::path& file : files) remove_quietly(file);
  fs::remove(units.folder, error);
}

}  // namespace kvscope

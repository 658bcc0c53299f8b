#include "analysis/units/unit_folder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <new>

#include "analysis/base/checked_lines.hpp"
#include "analysis/base/mapped.hpp"
#include "analysis/base/same_weights.hpp"
#include "analysis/units/others_unit.hpp"
#include "analysis/units/unit_file.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/new_file.hpp"
#include "core/base/number_text.hpp"
#include "core/base/version.hpp"

namespace kvscope {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kHashDigits = 16;
constexpr std::size_t kMostUnits = 100'000'000;
constexpr const char* kFailure = "failure";

std::string hash_of(std::string_view command, const std::string& version, const Json& header) {
  return config_checksum(Json{{"command", command}, {"version", version}, {"header", header}});
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
  std::ranges::sort(numbers);
  return numbers;
}

/// Which weights a unit was made with; null if it does not say.
Json weights_in(const Json& about) {
  return about.is_object() ? about.value("weights", Json()) : Json();
}

/// True if a file holds what its name says.
bool is_of_id(const std::optional<UnitFile>& file, const std::string& id) {
  try {
    return file && unit_id(file->about.at("work").get<std::string>(), file->about.at("unit")) == id;
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directory(folder, error);
  if (error && !fs::is_directory(folder))
    throw IoError("cannot make the folder {}: {}", folder.string(), error.message());
}

/// Collects what the files of a folder say of themselves.
class FolderReader {
 public:
  explicit FolderReader(UnitFolder& units) : units_(units) {}

  void add(const fs::path& file) {
    const Json about = read_unit_file(file).about;
    try {
      add_about(file, about);
    } catch (const nlohmann::json::exception& wrong) {
      throw FormatError("{}: not what a unit's file says: {}", file.string(), wrong.what());
    }
  }

  void finish() {
    std::vector<std::size_t>& done = units_.done;
    std::ranges::sort(done);
    // What was done after it had failed, is done.
    std::erase_if(units_.failed, [&](const FailedUnit& failed) {
      return std::ranges::binary_search(done, failed.unit);
    });
    std::ranges::sort(units_.failed,
                      [](const FailedUnit& a, const FailedUnit& b) { return a.unit < b.unit; });
    units_.n_missing = units_.n_units - done.size() - units_.failed.size();
  }

 private:
  void add_about(const fs::path& file, const Json& about) {
    const auto command = about.at("command").get<std::string>();
    const auto version = about.at("version").get<std::string>();
    const auto hash = about.at("work").get<std::string>();
    const auto n_units = about.at("n_units").get<std::size_t>();
    const auto unit = about.at("unit").get<std::size_t>();
    const bool has_failed = file.extension() == kFailedEnding;
    if (file.stem() != unit_id(hash, unit)) {
      throw FormatError("{}: expected the file to be called {}{}, as what it holds", file.string(),
                        unit_id(hash, unit), has_failed ? kFailedEnding : kUnitEnding);
    }
    if (units_.n_units == 0) {
      units_.command = command;
      units_.version = version;
      units_.hash = hash;
      units_.n_units = n_units;
      weights_ = weights_in(about);
      first_ = file.filename().string();
      if (n_units == 0 || n_units > kMostUnits)
        throw ConfigError("a number of units that cannot be");
    }
    require_same_work(file, about);
    if (unit >= n_units) throw FormatError("{}: a unit beyond the last", file.string());
    if (has_failed) {
      units_.failed.push_back({unit, unit_id(hash, unit), about.at(kFailure).get<std::string>()});
    } else {
      units_.done.push_back(unit);
    }
    if (unit != 0) return;
    units_.words = about.at("words").get<std::vector<std::string>>();
    units_.header = about.at("header");
    if (hash_of(command, version, units_.header) != hash)
      throw FormatError("{}: what decides the numbers is not what its name says", file.string());
  }

  void require_same_work(const fs::path& file, const Json& about) const {
    const std::string folder = units_.folder.string();
    const auto version = about.at("version").get<std::string>();
    if (version != units_.version) {
      throw ConfigError("{} holds units of {} and of {}: expected those of one version", folder,
                        units_.version, version);
    }
    if (about.at("work") == units_.hash && about.at("command") == units_.command &&
        about.at("n_units") == units_.n_units)
      return;
    if (about.at("command") == units_.command)
      require_same_weights(weights_in(about), weights_, file.string(), units_.done,
                           "units of one model make a result");
    throw ConfigError("{} holds units of different inputs or options: {} and {}", folder, first_,
                      file.filename().string());
  }

  UnitFolder& units_;
  Json weights_;       // of the first
  std::string first_;  // its file's name
};

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
    throw ConfigError("\"{}\" is no unit: expected an id as {} (--list-units names them)", id,
                      unit_id(hash, 0));
  }
  if (!id.starts_with(hash)) {
    throw ConfigError(
        "unit {} is of other inputs, options or another version: those of this "
        "command begin with {}",
        id, hash);
  }
  if (*unit >= work.n_units)
    throw ConfigError("unit {} does not exist: this command has {} units", id, work.n_units);
  return *unit;
}

bool has_unit(const fs::path& folder, const std::string& id) {
  return is_of_id(try_unit_file(unit_file(folder, id)), id);  // a damaged one is made again
}

bool has_failed(const fs::path& folder, const std::string& id) {
  return is_of_id(try_unit_file(failed_file(folder, id)), id);
}

void give_up_unit(const UnitWork& work, std::size_t unit, const fs::path& folder,
                  const std::string& sentence) {
  UnitFile failed{about_unit(work, unit), nullptr};
  failed.about[kFailure] = sentence;
  make_folder(folder);
  write_unit_file(failed_file(folder, unit_id(work.hash, unit)), failed);
}

std::string do_unit_file(const UnitWork& work, std::size_t unit, const fs::path& folder,
                         const ProgressFn& progress, std::stop_token stop) {
  const std::string id = unit_id(work.hash, unit);
  if (has_unit(folder, id)) return "";
  std::string sentence;
  Json line;
  const OthersUnit other(unit_file(folder, id), stop);
  try {
    line = work.run(unit, progress, other.stop());
  } catch (const Interrupted&) {
    if (!stop.stop_requested() && has_unit(folder, id)) return "";
    throw;
  } catch (const Error& error) {
    sentence = error.what();
  } catch (const std::bad_alloc&) {
    sentence = "out of memory";
  }
  if (!sentence.empty()) {
    if (has_unit(folder, id)) return "";
    give_up_unit(work, unit, folder, sentence);
    return sentence;
  }
  make_folder(folder);
  write_unit_file(unit_file(folder, id), {about_unit(work, unit), line});
  remove_quietly(failed_file(folder, id));
  return "";
}

UnitFolder read_unit_folder(const fs::path& folder) {
  const std::vector<fs::path> files = unit_files(folder);
  if (files.empty()) {
    throw FormatError("{} holds no units: expected files that --unit ID --out {} writes",
                      folder.string(), folder.string());
  }
  UnitFolder units{.folder = folder};
  FolderReader reader(units);
  for (const fs::path& file : files) reader.add(file);
  reader.finish();
  return units;
}

void require_no_other_units(const UnitWork& work, const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder, error)) return;
  for (const fs::path& file : unit_files(folder)) {
    const std::string name = file.filename().string();
    if (name.starts_with(work.hash + "-")) continue;
    if (const auto other = try_unit_file(file))
      require_same_weights(work.weights, weights_in(other->about), folder.string(),
                           numbers_of(folder, name.substr(0, kHashDigits)),
                           "name another folder with --units, or remove this one");
    throw ConfigError(
        "{} holds units of other inputs, options or another version: {}; name "
        "another folder with --units, or remove this one",
        folder.string(), name);
  }
}

std::vector<std::string> missing_units(const UnitFolder& units, std::size_t most) {
  std::vector<std::string> missing;
  auto done = units.done.begin();
  auto failed = units.failed.begin();
  const std::size_t n = std::min(most, units.n_missing);
  for (std::size_t unit = 0; unit < units.n_units && missing.size() < n; ++unit) {
    if (done != units.done.end() && *done == unit) {
      ++done;
    } else if (failed != units.failed.end() && failed->unit == unit) {
      ++failed;
    } else {
      missing.push_back(unit_id(units.hash, unit));
    }
  }
  return missing;
}

bool is_unit_folder(const fs::path& folder) {
  std::error_code error;
  return fs::is_directory(folder, error) && !unit_files(folder).empty();
}

void require_all_units(const UnitFolder& units, std::string_view who) {
  constexpr std::size_t kShown = 5;
  if (units.n_missing == 0) return;
  const std::vector<std::string> missing = missing_units(units, kShown);
  throw ConfigError("{}: {} of {} units are missing from {}: {}{}", who, units.n_missing,
                    units.n_units, units.folder.string(), fmt::join(missing, ", "),
                    units.n_missing > missing.size() ? ", ..." : "");
}

std::vector<std::string> lacking_sentences(const UnitFolder& units) {
  return mapped<std::string>(units.failed, [](const FailedUnit& failed) {
    return fmt::format("unit {} failed, its rows are empty: {}", failed.unit, failed.sentence);
  });
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
  for (const fs::path& file : files) fs::remove_all(file, error);  // leases are a folder
  fs::remove(units.folder, error);
}

}  // namespace kvscope

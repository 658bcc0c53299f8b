#include "analysis/units/unit_file.hpp"

#include <algorithm>
#include <chrono>

#include "analysis/base/checked_lines.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/new_file.hpp"
#include "core/base/read_files.hpp"
#include "core/base/version.hpp"

namespace kvscope {

namespace fs = std::filesystem;

UnitFile read_unit_file(const fs::path& file) {
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
  const std::size_t n_expected = file.extension() == kFailedEnding ? 1 : 2;
  if (n_lines != n_expected) {
    throw FormatError("{}: expected {}, found {} lines", file.string(),
                      n_expected == 1 ? "one line, what failed and why"
                                      : "two lines, what the unit is and its result",
                      n_lines);
  }
  return unit;
}

std::optional<UnitFile> try_unit_file(const fs::path& file) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return std::nullopt;
  const OwnFiles may_be_replaced;
  try {
    return read_unit_file(file);
  } catch (const Error&) {
    return std::nullopt;
  }
}

Json about_unit(const UnitWork& work, std::size_t unit) {
  Json about = {{"kvscope_unit", 1}, {"command", work.command}, {"version", writer_name()},
                {"work", work.hash}, {"n_units", work.n_units}, {"unit", unit}};
  if (!work.weights.is_null()) about["weights"] = work.weights;
  if (unit == 0) {
    about["words"] = work.words;
    about["header"] = work.header;
  }
  return about;
}

void write_unit_file(const fs::path& file, const UnitFile& unit) {
  write_new_file(file,
                 checked_line(unit.about) + (unit.line.is_null() ? "" : checked_line(unit.line)),
                 /*overwrite=*/true);
}

fs::path unit_file(const fs::path& folder, const std::string& id) {
  return folder / (id + std::string(kUnitEnding));
}

fs::path failed_file(const fs::path& folder, const std::string& id) {
  return folder / (id + std::string(kFailedEnding));
}

std::vector<fs::path> unit_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (auto entry = fs::directory_iterator(folder, error);
       !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const fs::path& file = entry->path();
    if (file.extension() == kUnitEnding || file.extension() == kFailedEnding) files.push_back(file);
  }
  if (error) throw IoError("cannot read the folder {}: {}", folder.string(), error.message());
  std::ranges::sort(files);
  return files;
}

double finished_per_second(const std::vector<fs::path>& files) {
  constexpr std::size_t kMost = 100;
  constexpr double kPatience = 10.0;
  constexpr double kLeastPatience = 60.0;  // seconds
  std::vector<fs::file_time_type> times;
  for (const fs::path& file : files) {
    std::error_code error;
    const auto time = fs::last_write_time(file, error);
    if (!error) times.push_back(time);
  }
  std::ranges::sort(times);
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

}  // namespace kvscope

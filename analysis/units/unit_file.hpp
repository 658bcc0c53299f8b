// One file of a folder of units (unit_folder.hpp): what a unit made, or why it could not.
//
//   DIR/ID.unit    two checked lines: what the unit is, then its line of the journal
//   DIR/ID.failed  one checked line: what the unit is, and the sentence of its error
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/units/unit_folder.hpp"

namespace kvscope {

inline constexpr std::string_view kUnitEnding = ".unit";
inline constexpr std::string_view kFailedEnding = ".failed";

struct UnitFile {
  nlohmann::ordered_json about;  // the first line
  nlohmann::ordered_json line;   // of the journal; null in a file of a failed unit
};

/// Throws IoError or FormatError.
UnitFile read_unit_file(const std::filesystem::path& file);
/// The same of one that may be damaged or missing.
std::optional<UnitFile> try_unit_file(const std::filesystem::path& file);

/// The first line for a unit of `work`.
nlohmann::ordered_json about_unit(const UnitWork& work, std::size_t unit);

/// Replaces what is there. Throws IoError.
void write_unit_file(const std::filesystem::path& file, const UnitFile& unit);

std::filesystem::path unit_file(const std::filesystem::path& folder, const std::string& id);
std::filesystem::path failed_file(const std::filesystem::path& folder, const std::string& id);

/// Both kinds, sorted by their names. Throws IoError if the folder cannot be read.
std::vector<std::filesystem::path> unit_files(const std::filesystem::path& folder);

/// Files a second, from the times of the last ones; 0 if there are too few, or if none was finished
/// for ten times as long as one took.
double finished_per_second(const std::vector<std::filesystem::path>& files);

}  // namespace kvscope

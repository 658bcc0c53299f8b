// The journal of a work in units: a checked line that says what the work is, then one for each unit
// that is finished, from which a run goes on after a kill.
//
//   {"kvscope_sweep":1,"config":{...},...}   the header: a mark, and what decides the numbers
//   {"unit":3,...}                           what is in it, only the work itself knows
//
// A folder of units (unit_folder.hpp) holds the same lines, a file for each.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>

#include "analysis/base/checked_lines.hpp"
#include "analysis/units/unit_folder.hpp"

namespace kvscope {

/// What to do with a journal that is already there.
enum class JournalMode { fresh, resume, overwrite };

/// Gets what a finished unit has; its ConfigError or JSON exception becomes a FormatError that
/// names file and line.
using UnitVisit = std::function<void(std::size_t unit, const nlohmann::ordered_json& line)>;

/// Calls begin(header), then visit for every unit. `name`: of the work, for messages; `mark`: what
/// its headers begin with. Returns the bytes of whole lines. Throws IoError, or FormatError for
/// damage, another work's journal, a newer version and a unit that stands there twice.
std::uintmax_t read_journal(const std::filesystem::path& file, std::string_view name,
                            std::string_view mark,
                            const std::function<void(const nlohmann::ordered_json&)>& begin,
                            const UnitVisit& visit);

/// The same lines of a folder from which nothing is missing, without those that failed. Throws
/// IoError, FormatError, or ConfigError that names what is missing.
void read_units(const UnitFolder& units, const UnitVisit& visit);

/// The journal that a run keeps.
class Journal {
 public:
  /// Begins `file` with the header, or goes on with it: `visit` gets what it holds. Without a file
  /// nothing is kept. Throws IoError if mode is fresh and the file is not empty, ConfigError if it
  /// is of other weights, another configuration or another shard, and what read_journal throws.
  Journal(const std::optional<std::filesystem::path>& file, JournalMode mode, std::string_view name,
          const nlohmann::ordered_json& header, const UnitVisit& visit);
  /// The line is with the system when this returns.
  void add(const nlohmann::ordered_json& line);

 private:
  std::optional<CheckedLineWriter> lines_;
};

}  // namespace kvscope

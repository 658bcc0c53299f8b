// Units of work in files: what one machine finishes alone lies in one file of a folder, and
// the folder holds the lines of the journal that a run on one machine would have written.
//
//   UnitWork    what a command has to do, cut as its journal is: a unit is a line of the journal
//   unit's id   HASH-NUMBER: the hash covers the command, the program's version and everything that
//               decides the numbers (the journal's first line): files of other inputs are named
//               otherwise
//   file        DIR/ID.unit (unit_file.hpp): what it is, then the journal's line. That of unit 0
//               also says the journal's first line and the command that makes the table.
//   failed      DIR/ID.failed: a unit that cannot be done says why and stops no other
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/progress.hpp"

namespace kvscope {

/// A unit as a scheduler sees it.
struct UnitCost {
  std::vector<std::string> inputs;  // "trace.h5, layer 3"
  double bytes_to_read = 0.0;
  /// On one core, up to a factor that the machine and the work decide: analysis/engines.md.
  double predicted_seconds = 0.0;
  double predicted_memory = 0.0;  // bytes beyond what the program takes by itself
};

struct UnitWork {
  std::string command;             // "sweep", "simulate retrieval"
  std::vector<std::string> words;  // of a command line that makes the same table
  nlohmann::ordered_json header;   // the journal's first line: everything that decides the numbers
  nlohmann::ordered_json weights;  // of the models it computes (same_weights.hpp); null: of none
  std::size_t n_units = 0;
  std::function<UnitCost(std::size_t)> cost;
  /// The unit's line in the journal.
  std::function<nlohmann::ordered_json(std::size_t, const ProgressFn&, std::stop_token)> run;
  bool may_lack = false;  // whether a result can be made where units failed
  std::string hash;       // 16 hexadecimal digits, of command, version and header: seal() fills it
};

/// Fills work.hash; what follows needs it.
void seal(UnitWork& work);

/// "5f0c2b6a9d3e8714-000017".
std::string unit_id(std::string_view work_hash, std::size_t unit);

/// The unit behind an id. Throws ConfigError, one sentence: no id at all, of other inputs or
/// another version, beyond the last unit.
std::size_t unit_of_id(const UnitWork& work, std::string_view id);

/// True if the folder holds the unit, whole.
bool has_unit(const std::filesystem::path& folder, const std::string& id);

/// True if the folder says that the unit failed.
bool has_failed(const std::filesystem::path& folder, const std::string& id);

/// Does the unit if the folder does not hold it yet; makes the folder if it is not there. Nothing
/// is written unless the unit is whole. A unit that cannot be done (bad input, no memory) leaves
/// ID.failed: then its sentence is returned. If another worker has written the unit meanwhile, this
/// one stops, as if it had done it. Throws IoError if the folder cannot be written,
/// Interrupted on a stop.
std::string do_unit_file(const UnitWork& work, std::size_t unit,
                         const std::filesystem::path& folder, const ProgressFn& progress,
                         std::stop_token stop);

/// Writes ID.failed of a unit that others tried.
void give_up_unit(const UnitWork& work, std::size_t unit, const std::filesystem::path& folder,
                  const std::string& sentence);

/// Names that engines give to files of their own in the folder: the list that workers share, and
/// what Slurm reads and writes.
inline constexpr std::string_view kUnitListStem = "list-of-units-";
/// Behind the list's name: the folder of what workers have taken (unit_leases.hpp).
inline constexpr std::string_view kLeasesEnding = ".leases";
inline constexpr std::string_view kSlurmStem = "slurm";

struct FailedUnit {
  std::size_t unit = 0;
  std::string id;
  std::string sentence;
};

/// What a folder of units says about itself.
struct UnitFolder {
  std::filesystem::path folder;
  std::string command;
  std::string version;
  std::string hash;
  std::size_t n_units = 0;
  std::vector<std::string> words;  // empty while unit 0 is neither done nor failed
  nlohmann::ordered_json header;   // null then, too
  std::vector<std::size_t> done;   // ascending
  std::vector<FailedUnit> failed;  // ascending
  std::size_t n_missing = 0;       // neither done nor failed
};

/// The ids of at most `most` units that are neither done nor failed, ascending.
std::vector<std::string> missing_units(const UnitFolder& units, std::size_t most);

/// True for a folder that holds a unit's file.
bool is_unit_folder(const std::filesystem::path& folder);

/// "unit 3 failed, its rows are empty: ...", for a result's list of what it lacks.
std::vector<std::string> lacking_sentences(const UnitFolder& units);

/// Reads every unit's first line. Throws ConfigError for units of several works or versions;
/// FormatError for a folder without units, damaged files and files under another unit's name.
UnitFolder read_unit_folder(const std::filesystem::path& folder);

/// Throws ConfigError if the folder holds a unit that is none of `work`: of other inputs or
/// options, or of another version. Nothing is computed into such a folder.
void require_no_other_units(const UnitWork& work, const std::filesystem::path& folder);

/// Throws ConfigError that names what is missing, if anything is. `who`: begins the sentence.
void require_all_units(const UnitFolder& units, std::string_view who);

/// Removes the files of these units, unfinished ones of killed workers too, and the folder if
/// nothing else is in it.
void remove_units(const UnitFolder& units);

}  // namespace kvscope

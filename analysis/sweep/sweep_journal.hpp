// The lines of a sweep's journal (analysis/units/journal.hpp): which sweep it is, and the blocks of
// rows of a finished unit.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "analysis/sweep/sweep_result.hpp"
#include "analysis/units/journal.hpp"

namespace kvscope {

/// A part of the units.
struct Shard {
  Index index = 1;
  Index count = 1;
  bool has(std::size_t unit) const { return static_cast<Index>(unit) % count == index - 1; }
};

/// What a journal's first line says.
struct JournalHeader {
  SweepResult sweep;  // without blocks
  Shard shard;
  std::size_t n_units = 0;  // of the whole sweep
};

/// The finished units of a sweep, as a journal or a folder has them.
struct SweepJournal {
  std::string where;  // for messages; empty: it is no file
  JournalHeader header;
  std::map<std::size_t, std::vector<SweepBlock>> units;  // by index
  std::vector<std::string> lacking;                      // sentences, one for each unit that failed
  /// Reads the unit's line. Throws ConfigError or a JSON exception.
  void add(std::size_t unit, const nlohmann::ordered_json& line);
};

/// The journal's first line, and that of a finished unit.
nlohmann::ordered_json header_line(const JournalHeader& header);
nlohmann::ordered_json unit_line(std::size_t unit, const std::vector<SweepBlock>& blocks);

/// Throw IoError or FormatError naming the file and the line.
SweepJournal read_sweep_journal(const std::filesystem::path& file);
SweepJournal read_sweep_journal(const UnitFolder& units);

}  // namespace kvscope

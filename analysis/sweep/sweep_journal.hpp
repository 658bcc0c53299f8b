// The journal of a sweep: one checked line per finished unit, the first one saying which sweep it
// is (analysis/base/checked_lines.hpp).
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "analysis/base/checked_lines.hpp"
#include "analysis/sweep/sweep_table.hpp"
#include "core/base/vocabulary.hpp"

namespace kvscope {

/// What a journal's first line says.
struct JournalHeader {
  std::string config_hash;
  nlohmann::ordered_json config;
  Index shard = 1;
  Index n_shards = 1;
  std::size_t n_units = 0;  // of the whole sweep
  std::vector<SweepTraceInfo> traces;
  std::vector<std::string> pairs;
  std::vector<std::string> skipped;
};

/// A journal as read.
struct Journal {
  JournalHeader header;
  std::map<std::size_t, std::vector<SweepBlock>> units;  // by index
  std::uintmax_t valid_bytes = 0;                        // where a writer goes on
};

/// The journal's first line, and that of a finished unit.
nlohmann::ordered_json header_line(const JournalHeader& header);
nlohmann::ordered_json unit_line(std::size_t unit, const std::vector<SweepBlock>& blocks);

/// Throws IoError or FormatError naming the file and the line.
Journal read_journal(const std::filesystem::path& file);

/// Appends lines; each is on disk (flushed) when add() returns.
class JournalWriter {
 public:
  /// A new journal; replaces an old one.
  JournalWriter(const std::filesystem::path& file, const JournalHeader& header);
  /// Goes on after the valid part of `journal`, which was read from `file`.
  JournalWriter(const std::filesystem::path& file, const Journal& journal);
  void add(std::size_t unit, const std::vector<SweepBlock>& blocks);

 private:
  CheckedLineWriter lines_;
};

}  // namespace kvscope

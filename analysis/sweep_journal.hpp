// The journal of a sweep: one line per finished unit, each with a checksum, the first one saying
// which sweep it is.
//
//   {"sum":"<FNV-1a 64 of the text after "data":>","data":{...}}
//
// A last line that was cut off (power, kill) is dropped; any other damage is an error.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/sweep_table.hpp"

namespace kvscope {

/// FNV-1a, 64 bits, as 16 hexadecimal digits.
std::string text_checksum(std::string_view text);

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
  void write_line(const nlohmann::ordered_json& data);
  std::filesystem::path file_;
  std::ofstream out_;
};

}  // namespace kvscope

// Journals of long work: JSON lines, each with a checksum, the first one saying what the work is.
//
//   {"sum":"<FNV-1a 64 of the text after "data":>","data":{...}}
//
// A last line that was cut off (power, kill) is dropped; any other damage is an error.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace kvscope {

/// FNV-1a, 64 bits, as 16 hexadecimal digits.
std::string text_checksum(std::string_view text);

/// The checksum of a configuration's text.
std::string config_checksum(const nlohmann::ordered_json& config);

/// The first setting in which two configurations differ, for a message.
std::string first_difference(const nlohmann::ordered_json& now, const nlohmann::ordered_json& then);

/// Calls visit(data, is_first) for every whole line; a ConfigError or JSON exception from it
/// becomes a FormatError that names file and line. `what`: "sweep", for messages. Returns the bytes
/// of the lines that count, where a writer goes on. Throws IoError or FormatError.
std::uintmax_t read_checked_lines(
    const std::filesystem::path& file, std::string_view what,
    const std::function<void(const nlohmann::ordered_json&, bool is_first)>& visit);

/// Appends lines; each is on disk (flushed) when write() returns.
class CheckedLineWriter {
 public:
  /// A new file; replaces an old one.
  explicit CheckedLineWriter(const std::filesystem::path& file);
  /// Goes on after the first valid_bytes of an old one.
  CheckedLineWriter(const std::filesystem::path& file, std::uintmax_t valid_bytes);
  void write(const nlohmann::ordered_json& data);

 private:
  std::filesystem::path file_;
  std::ofstream out_;
};

}  // namespace kvscope

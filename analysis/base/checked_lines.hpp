// Journals of long work: JSON lines, each with a checksum, the first one saying what the work is.
//
//   {"sum":"<FNV-1a 64 of the text after "data":>","data":{...}}
//
// A last line without its line break was cut off (power, kill), or its writer is at it: it is
// passed over. Any other damage is an error.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "core/base/descriptor.hpp"

namespace kvscope {

/// FNV-1a, 64 bits, as 16 hexadecimal digits.
std::string text_checksum(std::string_view text);

/// The checksum of a configuration's text.
std::string config_checksum(const nlohmann::ordered_json& config);

/// A line of a journal with its line break.
std::string checked_line(const nlohmann::ordered_json& data);

/// A line's data as text, and where the line stands in its file.
struct CheckedText {
  std::string_view data;
  std::uintmax_t begin = 0;
  std::size_t n_bytes = 0;  // with its checksum, without its line break
  bool is_first = false;
};

/// How much of a file was read.
struct CheckedEnd {
  std::uintmax_t bytes = 0;  // of whole lines
  std::size_t lines = 0;
};

/// Calls `visit` for every whole line after `from`, where an earlier reading ended; a ConfigError
/// or JSON exception from it becomes a FormatError that names file and line. `what`: "sweep", for
/// messages. Returns the end of the lines that count, where a writer goes on. Throws IoError or
/// FormatError.
CheckedEnd read_checked_texts(const std::filesystem::path& file, std::string_view what,
                              const std::function<void(const CheckedText&)>& visit,
                              CheckedEnd from = {});

/// Single lines of a file that read_checked_texts() has told of.
class CheckedLinesAt {
 public:
  /// Throws IoError.
  explicit CheckedLinesAt(const std::filesystem::path& file);
  /// The data of the line; throws FormatError if another one stands there now.
  std::string data(std::uintmax_t begin, std::size_t n_bytes) const;

 private:
  std::filesystem::path file_;
  Descriptor opened_;
};

/// Appends lines; each is with the system, all of it, when write() returns.
class CheckedLineWriter {
 public:
  /// A new file; replaces an old one. It has its name once the first line is whole on the device.
  explicit CheckedLineWriter(const std::filesystem::path& file);
  /// Throws IoError; then the file ends with the line before.
  void write(const nlohmann::ordered_json& data);
  /// Until the bytes are on the device. Throws IoError.
  void sync();

 private:
  std::filesystem::path file_;
  Descriptor opened_;  // none before the first line of a new file
};

}  // namespace kvscope

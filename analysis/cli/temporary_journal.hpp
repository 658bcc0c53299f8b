// A journal that nobody asked for: a file in the temporary folder, removed at the end, whatever
// happens.
#pragma once

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "core/base/new_file.hpp"

namespace kvscope::cli {

class TemporaryJournal {
 public:
  /// command: what the file is named after, as "sweep".
  /// Throws IoError if there is no folder for temporary files.
  explicit TemporaryJournal(std::string_view command) {
    std::error_code error;
    const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
    if (error) {
      const char* named = std::getenv("TMPDIR");
      throw IoError("there is no folder for temporary files: TMPDIR is {}",
                    named == nullptr ? "not set" : named);
    }
    // Named like a file on its way, but without the end that outputs may not have.
    const std::string name =
        NewFile(folder / fmt::format("kvscope-{}", command), true).temporary().string();
    file_ = name.substr(0, name.rfind('.')) + ".journal";
  }
  ~TemporaryJournal() {
    if (!file_.empty()) remove_quietly(file_);
  }
  TemporaryJournal(const TemporaryJournal&) = delete;
  TemporaryJournal& operator=(const TemporaryJournal&) = delete;
  const std::filesystem::path& file() const { return file_; }

 private:
  std::filesystem::path file_;
};

}  // namespace kvscope::cli

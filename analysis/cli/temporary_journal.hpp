// A journal that nobody asked for: a file in the temporary folder, removed at the end, whatever
// happens.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>
#include <string_view>

namespace kvscope::cli {

class TemporaryJournal {
 public:
  /// command: what the file is named after, as "sweep".
  explicit TemporaryJournal(std::string_view command)
      : file_(std::filesystem::temp_directory_path() /
              ("kvscope-" + std::string(command) + "-" + std::to_string(::getpid()) + ".journal")) {
  }
  ~TemporaryJournal() {
    std::error_code ignored;
    std::filesystem::remove(file_, ignored);
  }
  TemporaryJournal(const TemporaryJournal&) = delete;
  TemporaryJournal& operator=(const TemporaryJournal&) = delete;
  const std::filesystem::path& file() const { return file_; }

 private:
  std::filesystem::path file_;
};

}  // namespace kvscope::cli

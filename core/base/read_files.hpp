// The files that a piece of work has read, so that nothing it writes takes the place of one, and
// that none becomes another while the work goes on.
//
// Whatever reads files for users notes them here (read_whole_file, MappedFile, the driver below
// HDF5); what makes files asks (check_output, NewFile). So no command needs a list of its inputs,
// and none can forget one that an option names.
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace kvscope {

/// While one of these lives, files that any thread reads are noted in it; afterwards in the one
/// before it. Without one nothing is noted, and everything may be replaced.
class ReadFiles {
 public:
  ReadFiles();
  ~ReadFiles();
  ReadFiles(const ReadFiles&) = delete;
  ReadFiles& operator=(const ReadFiles&) = delete;

  /// Remembers if another file, or this one before it was changed, was read by this name here or in
  /// a piece of work around this one.
  void note(const struct stat& status, const std::filesystem::path& path);
  /// The name under which the file was read that `out` is, whatever `out` calls it.
  std::optional<std::filesystem::path> behind(const std::filesystem::path& out) const;
  /// Throws IoError if note() found a changed file.
  void require_unchanged() const;

 private:
  ReadFiles* before_;
  mutable std::mutex mutex_;
  std::map<std::pair<dev_t, ino_t>, std::filesystem::path> files_;
  std::map<std::filesystem::path, std::string> versions_;  // device, inode, size and last change
  std::optional<std::filesystem::path> changed_;
};

/// Notes the file behind an open descriptor.
void note_read_file(int fd, const std::filesystem::path& path);

/// Throws ConfigError if `out` is a file that was read.
void refuse_read_file(const std::filesystem::path& out);

/// Throws IoError if a file was read again and was another one.
void require_unchanged_inputs();

/// While one of these lives, this thread reads files of the program's own (what an earlier start
/// left), which it may replace: they are not noted.
class OwnFiles {
 public:
  OwnFiles();
  ~OwnFiles();
  OwnFiles(const OwnFiles&) = delete;
  OwnFiles& operator=(const OwnFiles&) = delete;
};

}  // namespace kvscope

// The files that a piece of work has read, so that nothing it writes takes the place of one.
//
// Whatever reads files for users notes them here (read_whole_file, MappedFile, the driver below
// HDF5); what makes files asks (check_output, NewFile). So no command needs a list of its inputs,
// and none can forget one that an option names.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
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

  void note(dev_t device, ino_t inode, const std::filesystem::path& path);
  /// The name under which the file was read that `out` is, whatever `out` calls it.
  std::optional<std::filesystem::path> behind(const std::filesystem::path& out) const;

 private:
  ReadFiles* before_;
  mutable std::mutex mutex_;
  std::map<std::pair<dev_t, ino_t>, std::filesystem::path> files_;
};

/// Notes the file behind an open descriptor.
void note_read_file(int fd, const std::filesystem::path& path);

/// Throws ConfigError if `out` is a file that was read.
void refuse_read_file(const std::filesystem::path& out);

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

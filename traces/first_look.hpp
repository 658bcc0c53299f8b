// A first look at a file of unknown origin, in a process of its own.
//
// HDF5 1.10 believes the metadata of a file: damaged ones make it read outside its memory, run in
// circles, or ask for gigabytes. So before a file is opened here, a process beside this one opens
// it in the very same way (looker.hpp), with limits on memory and time. If that one lives, the same
// steps are safe in this process; if it dies, that is a sentence about the file.
//
// The process stays for the files to come, since forking costs more than looking. It is replaced
// after every answer but "good", and only "good" is taken from one that has seen other files:
// whatever else it says is asked again of a new one, so that what is said of a file never depends
// on the files before. A thread that finds it at work forks one of its own for the one file, as
// does a program that uses more than 256 MiB, of which a process that stays would keep a copy.
//
// Why fork, and not a program of ours that is started anew: the process has to do exactly what the
// caller will do, in any program that uses the library. It is sound in a process with threads
// because it is forked with HDF5's global lock taken (so HDF5's state is whole), touches no other
// lock but the allocator's, which glibc hands over in good order, and ends by a signal to itself.
#pragma once

#include <filesystem>
#include <memory>

#include "traces/looker.hpp"

namespace kvscope {

/// Lives while the file is opened, during which the memory of a process for this one file is taken
/// down beside us.
class FirstLook {
 public:
  /// Runs `open(path, options)` in the other process first. Returns if it went well, or if `path`
  /// was looked at before in this process and is unchanged (device, inode, size, time of change).
  /// Throws what `open` threw there (ConfigError, IoError, FormatError with the same words), or
  /// FormatError if it died, took more than 10 s of processor time or 1 GiB more memory than the
  /// file has bytes.
  FirstLook(const std::filesystem::path& path, OpenFunction open, unsigned options = 0);

  /// True if `open` went well, now or before; false where no look could be taken (no regular file,
  /// no process to be had, a sanitizer that forbids it).
  bool is_good() const { return is_good_; }

  /// The process that stays; -1 if there is none at present. For tests.
  static pid_t staying_process();

 private:
  std::unique_ptr<Looker> own_;  // for this one file
  bool is_good_ = false;
};

}  // namespace kvscope

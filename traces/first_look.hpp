// A first look at a file of unknown origin, in a process of its own.
//
// HDF5 1.10 believes the metadata of a file: damaged ones make it read outside its memory, run in
// circles, or ask for gigabytes. So before a file is opened here, a forked child opens it in the
// very same way, with limits on memory and time. If the child lives, the same steps are safe in this
// process; if it dies, that is a sentence about the file.
//
// Why fork, and not a program of ours that is started anew: the child has to do exactly what the
// caller will do, in any program that uses the library, in a millisecond. It is sound in a process
// with threads because the child runs with HDF5's global lock taken (so HDF5's state is whole),
// touches no other lock but the allocator's, which glibc hands over in good order, and ends by a
// signal to itself: no destructor, no exit handler, no buffer of the parent is run or written twice.
#pragma once

#include <filesystem>
#include <functional>

namespace kvscope {

/// Lives while the file is opened, during which the child's memory is taken down beside us.
class FirstLook {
 public:
  /// Runs `open` in a child first. Returns if it went well, or if `path` was looked at before in this
  /// process and is unchanged (device, inode, size, time of change). Throws what `open` threw there
  /// (ConfigError, IoError, FormatError with the same words), or FormatError if it died, took more
  /// than 10 s of processor time or 1 GiB more memory than the file has bytes.
  FirstLook(const std::filesystem::path& path, const std::function<void()>& open);
  ~FirstLook();
  FirstLook(const FirstLook&) = delete;
  FirstLook& operator=(const FirstLook&) = delete;

  /// True if `open` went well, now or before; false where no look could be taken (no regular file, no
  /// process to be had, a sanitizer that forbids it).
  bool is_good() const { return is_good_; }

 private:
  int child_ = -1;  // a process to be waited for
  bool is_good_ = false;
};

}  // namespace kvscope

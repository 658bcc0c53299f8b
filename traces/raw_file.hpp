// Plain file operations with sentences for errors: positioned writes, locks, and renames that lose
// nothing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace kvscope {

/// A file that is open for writing at known offsets. Closing never throws; what matters is synced
/// before.
class RawFile {
 public:
  RawFile() = default;
  /// Opens an existing file. Throws IoError.
  static RawFile open(const std::filesystem::path& path);
  RawFile(RawFile&& other) noexcept;
  RawFile& operator=(RawFile&& other) noexcept;
  ~RawFile();

  /// All bytes or an IoError (disk full, quota, ...).
  void write(std::uint64_t offset, const void* data, std::size_t n_bytes);
  /// Waits until the bytes are on the device.
  void sync();
  /// Marks the file as being recorded; readers are let through. Released on close, also by a kill.
  void lock_as_recorder();
  void close();
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
  std::string name_;
};

/// True if a live process is recording into this file.
bool is_being_recorded(const std::filesystem::path& path);

/// Syncs `from`, gives it the name `to` and syncs the folder. Throws IoError if `to` exists and may
/// not be overwritten.
void publish_file(const std::filesystem::path& from, const std::filesystem::path& to,
                  bool overwrite);

/// OUT.part: where a file grows before it gets its name.
std::filesystem::path part_path(const std::filesystem::path& out);

/// True for a name that ends in ".part".
bool is_part_path(const std::filesystem::path& path);

/// Removes a file if it is there; never throws.
void remove_quietly(const std::filesystem::path& path);

/// Throws IoError unless a file named `out` can be made: its folder exists; it is no folder itself;
/// it does not exist yet or may be overwritten.
void check_output(const std::filesystem::path& out, bool overwrite);

}  // namespace kvscope

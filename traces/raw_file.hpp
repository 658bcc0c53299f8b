// The file that a recording grows in, with sentences for errors: positioned writes, a lock, and its
// name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "core/base/descriptor.hpp"

namespace kvscope {

/// A file that is open for writing at known offsets. Closing never throws; what matters is synced
/// before.
class RawFile {
 public:
  RawFile() = default;
  /// Opens an existing file. Throws IoError.
  static RawFile open(const std::filesystem::path& path);
  RawFile(RawFile&&) noexcept = default;
  RawFile& operator=(RawFile&&) noexcept = default;
  ~RawFile() { close(); }

  /// All bytes or an IoError (disk full, quota, ...).
  void write(std::uint64_t offset, const void* data, std::size_t n_bytes);
  /// All bytes or an IoError, also where the file ends before.
  void read(std::uint64_t offset, void* data, std::size_t n_bytes) const;
  /// Waits until the bytes are on the device.
  void sync();
  /// Marks the file as being recorded; readers are let through. Released on close, also by a kill.
  void lock_as_recorder();
  void close();
  bool is_open() const { return file_.get() >= 0; }

 private:
  Descriptor file_;
  std::string name_;
};

/// True if a live process is recording into this file.
bool is_being_recorded(const std::filesystem::path& path);

/// True for what a recorder left that was killed: an empty file, the begin of an HDF5 file, or a
/// trace with the status "recording", whole or not. False for everybody else's files.
bool is_unfinished_recording(const std::filesystem::path& path);

/// OUT.part: where a file grows before it gets its name.
std::filesystem::path part_path(const std::filesystem::path& out);

/// True for a name that ends in ".part".
bool is_part_path(const std::filesystem::path& path);

}  // namespace kvscope

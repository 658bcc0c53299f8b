// What lies under HDF5: one file of the system, through a driver that never lets HDF5 see a failing
// write.
//
// HDF5 1.10 holds data back until a dataset or file is closed, reports what then fails from calls
// whose results say nothing about the file, and is left with broken structures of its own that end
// the process later. So here a write that the system refuses is noted, kept in memory, and reported
// as done; HDF5 closes in good order, and File::close, which every writer calls before it
// publishes, throws what was noted. The driver opens nothing but the file that it was handed: a
// file that names others (virtual datasets, external links) cannot make this program open them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "traces/h5.hpp"

namespace kvscope::h5 {

class Device {
 public:
  enum class Mode { create, read, write };

  /// Opens a regular file, or makes one that was not there. Throws IoError.
  Device(const std::filesystem::path& path, Mode mode);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  std::uint64_t size_bytes() const { return size_; }
  int* descriptor_place() { return &fd_; }  // for HDF5, which reads it

  /// Zeros where the file never had bytes. False if the system could not read them, or if the file
  /// is shorter than it was when it was opened for reading.
  bool read(std::uint64_t offset, void* out, std::size_t n_bytes);
  void write(std::uint64_t offset, const void* data, std::size_t n_bytes);
  void resize(std::uint64_t n_bytes);
  /// The advisory lock that HDF5 asks for. False if another process has the file.
  bool lock(bool exclusive);
  void unlock();

  /// Throws IoError if the system refused anything so far.
  void check() const;
  /// Puts everything on the device, closes, and throws IoError if anything failed since the
  /// file was opened.
  void finish();
  /// The sentence of the last reading that failed; empty if none did.
  const std::string& read_failure() const { return read_failure_; }
  int lock_error() const { return lock_error_; }

 private:
  struct Piece {
    std::uint64_t offset;
    std::vector<std::byte> bytes;
  };

  void note(int reason);

  int fd_ = -1;
  std::string name_;
  bool writable_;
  std::uint64_t size_ = 0;
  int write_error_ = 0;  // errno of the first refusal
  std::string read_failure_;
  int lock_error_ = 0;
  std::vector<Piece> refused_;  // what HDF5 believes to be in the file, in the order of writing
};

/// An access list with which one file may be opened, which then lies on `device`. Only with
/// the Lock held.
class AccessOnce {
 public:
  explicit AccessOnce(std::shared_ptr<Device> device);
  ~AccessOnce();
  AccessOnce(const AccessOnce&) = delete;
  AccessOnce& operator=(const AccessOnce&) = delete;
  Handle get() const { return list_.get(); }

 private:
  Id list_;
};

}  // namespace kvscope::h5

// What the files behind h5.hpp share, and the only header that shows HDF5's own.
#pragma once

#include <fmt/format.h>
#include <hdf5.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "traces/h5.hpp"

namespace kvscope::h5 {

static_assert(sizeof(Handle) == sizeof(hid_t));

/// Holds the global lock and keeps this thread's HDF5 from printing. Every call of HDF5 happens
/// below one of these.
class Lock {
 public:
  /// `file` is told if HDF5 crashes below this lock (hdf5_library.hpp); it has to live as long.
  explicit Lock(const char* file = nullptr);
  ~Lock();
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  /// In a forked child, whose one thread holds the lock that its parent took: from now on there is
  /// nobody to lock out.
  static void stay_alone();

 private:
  std::unique_lock<std::recursive_mutex> guard_;
  const char* outer_file_;
};

/// The file that this thread works on inside HDF5, "" if it has no name here; null outside. Safe in
/// signal handlers.
const char* file_in_use();

/// How many objects HDF5 could not close in good order so far. Call with the Lock held.
std::uint64_t& n_failed_closes();

/// What the system did not let this thread read since it last opened a file; empty if nothing. HDF5
/// goes on from some failures as if something were not in the file, and may say so calls later.
std::string& read_failure();
/// Throws IoError if there is one.
void require_readable();

/// The description at the bottom of HDF5's error stack: what really went wrong.
std::string innermost_error();

/// The sentence with HDF5's own words behind it, as FormatError (reading; IoError if the system did
/// not let it read) or IoError (writing).
[[noreturn]] void fail_format(const std::string& sentence);
[[noreturn]] void fail_io(const std::string& sentence);

template <class Status>
Status check_format(Status status, const std::string& sentence) {
  if (status < 0) fail_format(sentence);
  return status;
}

template <class Status>
Status check_io(Status status, const std::string& sentence) {
  if (status < 0) fail_io(sentence);
  return status;
}

/// The type of stored elements; memory holds them in the same type, so HDF5 never converts.
Id file_type(Type type);
/// Which Type a type of HDF5 is; empty if none.
std::optional<Type> identify(hid_t type);
/// UTF-8 text of fixed size, padded with zero bytes.
Id text_type(std::size_t size);

inline std::vector<hsize_t> to_hsize(const Dims& dims) {
  return {dims.begin(), dims.end()};
}

/// Types of an attribute's elements.
struct AttributeType {
  hid_t in_file;
  hid_t in_memory;
};
/// A new attribute: one element, or a list [n]. Throws IoError that begins with `what`.
void put_attribute(hid_t node, const char* name, AttributeType type, std::optional<std::size_t> n,
                   const void* data, const std::string& what);

}  // namespace kvscope::h5

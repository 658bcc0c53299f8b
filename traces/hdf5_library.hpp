// Which HDF5 library this program runs with, which of its filters are there, and what happens
// when it crashes.
#pragma once

#include <string>
#include <vector>

namespace kvscope {

/// The library's version as loaded: "1.10.8".
std::string hdf5_version();

/// Names of the compression and checksum filters that can be used now.
std::vector<std::string> hdf5_filters();

/// Lets a crash inside HDF5 (damaged data that a first look at the file did not come across) end
/// in a sentence: `end` is called with the file's name, in a signal handler, and must end the
/// process with nothing but write and _exit. Crashes elsewhere stay what they are. For programs,
/// once, in main.
void on_crash_in_hdf5(void (*end)(const char* file), void (*lost)(const char* file) = nullptr);

}  // namespace kvscope

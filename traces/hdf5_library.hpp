// Which HDF5 library this program runs with, and which of its filters are there.
#pragma once

#include <string>
#include <vector>

namespace kvscope {

/// The library's version as loaded: "1.10.8".
std::string hdf5_version();

/// Names of the compression and checksum filters that can be used now, plugins included.
std::vector<std::string> hdf5_filters();

}  // namespace kvscope

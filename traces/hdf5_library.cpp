#include "traces/hdf5_library.hpp"

#include <fmt/format.h>
#include <hdf5.h>

#include <utility>

namespace kvscope {

std::string hdf5_version() {
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return fmt::format("{}.{}.{}", major, minor, release);
}

std::vector<std::string> hdf5_filters() {
  static constexpr std::pair<H5Z_filter_t, const char*> kKnown[] = {
      {H5Z_FILTER_DEFLATE, "gzip"},
      {H5Z_FILTER_SHUFFLE, "shuffle"},
      {H5Z_FILTER_FLETCHER32, "fletcher32"},
      {H5Z_FILTER_SZIP, "szip"},
      {32001, "blosc"},
      {32004, "lz4"},
      {32015, "zstd"}};
  std::vector<std::string> names;
  for (const auto& [id, name] : kKnown) {
    if (H5Zfilter_avail(id) > 0) names.emplace_back(name);
  }
  return names;
}

}  // namespace kvscope

#include "core/base/host_memory.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace kvscope {

namespace {

namespace fs = std::filesystem;

/// The number behind a key of a file of "key number" lines.
std::optional<std::size_t> number_after(const fs::path& file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    std::istringstream rest(line.substr(key.size()));
    std::size_t number = 0;
    if (rest >> number) return number;
  }
  return std::nullopt;
}

/// "max", which stands for no limit, is none.
std::optional<std::size_t> number_in(const fs::path& file) {
  return number_after(file, "");
}

/// What the control group and those above it leave (version 2). Memory that only keeps read files
/// is given up when needed.
std::optional<std::size_t> left_by_groups() {
  std::ifstream in("/proc/self/cgroup");
  std::string group;
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("0::/")) group = line.substr(4);
  std::optional<std::size_t> left;
  const fs::path root = "/sys/fs/cgroup";
  for (fs::path folder = root / group;; folder = folder.parent_path()) {
    const auto limit = number_in(folder / "memory.max");
    const auto used = number_in(folder / "memory.current");
    if (limit && used) {
      const std::size_t files = number_after(folder / "memory.stat", "inactive_file ").value_or(0);
      const std::size_t taken = *used - std::min(*used, files);
      const std::size_t here = *limit - std::min(*limit, taken);
      left = left ? std::min(*left, here) : here;
    }
    if (folder == root || folder == folder.parent_path()) return left;
  }
}

}  // namespace

std::optional<std::size_t> available_memory() {
  std::optional<std::size_t> free = number_after("/proc/meminfo", "MemAvailable:");
  if (free) *free *= 1024;
  const std::optional<std::size_t> left = left_by_groups();
  if (!free || !left) return free ? free : left;
  return std::min(*free, *left);
}

}  // namespace kvscope

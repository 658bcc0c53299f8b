// What tests/support/failing_disk.c counted.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>

#include "tests/support/temp_dir.hpp"

namespace kvscope::testing {

/// The calls that a program made whose KVSCOPE_FAIL_COUNT this file was; it did not exist before.
inline long counted_calls(const std::filesystem::path& file) {
  const std::string bytes = read_file(file);
  std::int64_t n = 0;
  if (bytes.size() != sizeof n) return -1;
  std::memcpy(&n, bytes.data(), sizeof n);
  return static_cast<long>(n);
}

}  // namespace kvscope::testing

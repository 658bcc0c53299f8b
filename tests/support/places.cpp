#include "tests/support/places.hpp"

namespace kvscope::testing {

std::filesystem::path source_dir() {
  return KVSCOPE_SOURCE_DIR;
}

std::filesystem::path kvscope_program() {
  return KVSCOPE_PROGRAM;
}

std::filesystem::path failing_disk() {
  return KVSCOPE_FAILING_DISK;
}

std::optional<std::filesystem::path> old_driver() {
#ifdef KVSCOPE_OLD_DRIVER
  return KVSCOPE_OLD_DRIVER;
#else
  return std::nullopt;
#endif
}

}  // namespace kvscope::testing

#include "core/base/version.hpp"

#include <fmt/format.h>

namespace kvscope {

std::string_view version() {
  return KVSCOPE_VERSION;
}

std::string_view commit() {
  return KVSCOPE_COMMIT;
}

std::string_view compiler() {
  return KVSCOPE_COMPILER;
}

std::string writer_name() {
  return fmt::format("kvscope {} ({})", version(), commit());
}

}  // namespace kvscope

#include "tests/support/real_models.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <string>

#include "tests/support/places.hpp"

namespace kvscope::testing {

std::filesystem::path real_models() {
  const auto folder = kvscope_program().parent_path().parent_path() / "tests/real_models";
  const auto script = source_dir() / "tests/support/fetch_real_models.py";
  const std::string command =
      fmt::format("python3 '{}' '{}' 2> /dev/null", script.string(), folder.string());
  return std::system(command.c_str()) == 0 ? folder : std::filesystem::path();
}

}  // namespace kvscope::testing

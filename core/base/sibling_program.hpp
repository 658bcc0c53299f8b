// Where another program of kvscope is started from: programs that are installed together lie in one
// folder.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>

namespace kvscope {

/// The path of the program `name` beside the running one; the name itself, which the system then
/// looks for in PATH, if there is none.
inline std::string sibling_program(const std::string& name) {
  std::error_code error;
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path beside = own.parent_path() / name;
  return !error && std::filesystem::exists(beside, error) ? beside.string() : name;
}

}  // namespace kvscope

// A folder of its own for one test, removed with everything in it at the end.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace kvscope::testing {

class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// The path of a file in the folder, whether it is there or not.
  std::string file(std::string_view name) const { return (path_ / name).string(); }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }
  std::size_t n_files() const;

  /// Writes a file into the folder and returns its path.
  std::filesystem::path write(std::string_view name, std::string_view contents) const;

 private:
  std::filesystem::path path_;
};

/// All bytes of a file; throws std::runtime_error if it cannot be read.
std::string read_file(const std::filesystem::path& path);

/// Turns one bit behind a file's middle: in a recording amid keys, values or queries. The same
/// again mends it.
void flip(const std::filesystem::path& file);

}  // namespace kvscope::testing

namespace kvscope {

using testing::flip;
using testing::read_file;
using testing::TempDir;

}  // namespace kvscope

#include "tests/support/temp_dir.hpp"

#include <stdlib.h>

#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <system_error>

namespace kvscope::testing {

TempDir::TempDir() {
  std::string name = (std::filesystem::temp_directory_path() / "kvscope_test_XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed for " + name);
  path_ = name;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::size_t TempDir::n_files() const {
  namespace fs = std::filesystem;
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(path_), fs::directory_iterator()));
}

std::filesystem::path TempDir::write(std::string_view name, std::string_view contents) const {
  const std::filesystem::path file = path_ / name;
  std::ofstream stream(file, std::ios::binary);
  stream.write(contents.data(), static_cast<std::streamsize>(contents.size()));
  if (!stream.flush()) throw std::runtime_error("cannot write " + file.string());
  return file;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw std::runtime_error("cannot open " + path.string());
  return {std::istreambuf_iterator<char>(stream), {}};
}

void flip(const std::filesystem::path& file) {
  std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
  const auto at = static_cast<std::streamoff>(std::filesystem::file_size(file) * 6 / 10);
  bytes.seekg(at);
  const char flipped = static_cast<char>(bytes.get() ^ 0x10);
  bytes.seekp(at);
  bytes.put(flipped);
}

}  // namespace kvscope::testing

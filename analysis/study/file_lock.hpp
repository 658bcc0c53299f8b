// A lock that ends with its process, however that ends: for work that two must not do at once.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace kvscope {

class FileLock {
 public:
  /// Nothing if another process has it. The file is made if it is not there, and names the process
  /// while it is held. Throws IoError.
  static std::optional<FileLock> take(const std::filesystem::path& file);
  /// Who has it: "process 4711 on node3"; empty if nobody does.
  static std::string holder(const std::filesystem::path& file);

  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_ = -1;
};

}  // namespace kvscope

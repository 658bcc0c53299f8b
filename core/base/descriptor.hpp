// An open file of the system that is closed with its owner.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "core/base/error.hpp"

namespace kvscope {

/// A descriptor that no started program inherits by itself, closed at the end.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  /// Throws IoError.
  static Descriptor open(const std::filesystem::path& file, int flags) {
    const int fd = ::open(file.c_str(), flags | O_CLOEXEC);
    if (fd < 0)
      throw IoError(fmt::format("{} cannot be opened: {}", file.string(), std::strerror(errno)));
    return Descriptor(fd);
  }

 private:
  int fd_;
};

}  // namespace kvscope

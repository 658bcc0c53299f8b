#include "traces/raw_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/error.hpp"

namespace kvscope {

RawFile RawFile::open(const std::filesystem::path& path) {
  RawFile file;
  file.name_ = path.string();
  file.fd_ = ::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC);
  if (file.fd_ < 0)
    throw IoError(fmt::format("cannot open {}: {}", file.name_, std::strerror(errno)));
  return file;
}

RawFile::RawFile(RawFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), name_(std::move(other.name_)) {}

RawFile& RawFile::operator=(RawFile&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = std::exchange(other.fd_, -1);
    name_ = std::move(other.name_);
  }
  return *this;
}

RawFile::~RawFile() {
  close();
}

void RawFile::write(std::uint64_t offset, const void* data, std::size_t n_bytes) {
  const char* next = static_cast<const char*>(data);
  while (n_bytes > 0) {
    const ssize_t n = ::pwrite(fd_, next, n_bytes, static_cast<off_t>(offset));
    if (n < 0) {
      if (errno == EINTR) continue;
      throw IoError(fmt::format("cannot write {}: {}", name_, std::strerror(errno)));
    }
    next += n;
    offset += static_cast<std::uint64_t>(n);
    n_bytes -= static_cast<std::size_t>(n);
  }
}

void RawFile::sync() {
  if (::fsync(fd_) != 0) {
    throw IoError(fmt::format("cannot write {} to the device: {}", name_, std::strerror(errno)));
  }
}

// File systems without locks refuse the call; recording works there too, only unguarded.
void RawFile::lock_as_recorder() {
  (void)::flock(fd_, LOCK_SH | LOCK_NB);
}

void RawFile::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

bool is_being_recorded(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool held = ::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(fd);
  return held;
}

std::filesystem::path part_path(const std::filesystem::path& out) {
  return out.string() + ".part";
}

bool is_part_path(const std::filesystem::path& path) {
  return path.extension() == ".part";
}

}  // namespace kvscope

#include "traces/raw_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "core/base/error.hpp"

namespace kvscope {

namespace {

void sync_path(const std::filesystem::path& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC);
  if (fd < 0) throw IoError(fmt::format("cannot open {}: {}", path.string(), std::strerror(errno)));
  const int status = ::fsync(fd);
  const int reason = errno;
  ::close(fd);
  // Some file systems cannot sync folders (EINVAL): then there is nothing to wait for.
  if (status != 0 && reason != EINVAL) {
    throw IoError(
        fmt::format("cannot write {} to the device: {}", path.string(), std::strerror(reason)));
  }
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

}  // namespace

RawFile RawFile::open(const std::filesystem::path& path) {
  RawFile file;
  file.name_ = path.string();
  file.fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
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

void publish_file(const std::filesystem::path& from, const std::filesystem::path& to,
                  bool overwrite) {
  sync_path(from, O_RDWR);
  int status = -1;
  if (!overwrite) {
    status = ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE);
    if (status != 0 && (errno == EINVAL || errno == ENOSYS)) {
      if (std::filesystem::exists(to))
        errno = EEXIST;
      else
        status = ::rename(from.c_str(), to.c_str());
    }
  } else {
    status = ::rename(from.c_str(), to.c_str());
  }
  if (status != 0) {
    throw IoError(fmt::format("cannot rename {} to {}: {}", from.string(), to.string(),
                              std::strerror(errno)));
  }
  sync_path(folder_of(to), O_RDONLY | O_DIRECTORY);
}

std::filesystem::path part_path(const std::filesystem::path& out) {
  return out.string() + ".part";
}

bool is_part_path(const std::filesystem::path& path) {
  return path.extension() == ".part";
}

void remove_quietly(const std::filesystem::path& path) {
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
}

void check_output(const std::filesystem::path& out, bool overwrite) {
  std::error_code error;
  const std::filesystem::path folder = folder_of(out);
  if (out.filename().empty() || std::filesystem::is_directory(out, error)) {
    throw IoError(
        fmt::format("cannot write {}: it is a folder, expected a file name", out.string()));
  }
  if (is_part_path(out)) {
    throw IoError(
        fmt::format("cannot write {}: names that end in .part are for files that are not whole yet",
                    out.string()));
  }
  if (!std::filesystem::is_directory(folder, error)) {
    throw IoError(
        fmt::format("cannot write {}: there is no folder {}", out.string(), folder.string()));
  }
  if (!overwrite && std::filesystem::exists(out, error)) {
    throw IoError(
        fmt::format("{} exists; choose another name or ask to overwrite it", out.string()));
  }
}

}  // namespace kvscope

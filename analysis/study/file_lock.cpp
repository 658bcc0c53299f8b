#include "analysis/study/file_lock.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/new_file.hpp"

namespace kvscope {

namespace {

std::string this_process() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  return fmt::format("process {} on {}", ::getpid(), host.data());
}

}  // namespace

std::optional<FileLock> FileLock::take(const std::filesystem::path& file) {
  // Workers do not inherit it: what they leave behind must not hold the next run up.
  const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd < 0)
    throw IoError("cannot open {}: {}", file.string(), std::generic_category().message(errno));
  FileLock lock(fd);
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return std::nullopt;
    throw IoError("cannot lock {}: {}", file.string(), std::generic_category().message(errno));
  }
  if (::ftruncate(fd, 0) == 0) write_all(fd, this_process(), file.string());
  return lock;
}

std::string FileLock::holder(const std::filesystem::path& file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return "";
  const FileLock lock(fd);
  if (::flock(fd, LOCK_SH | LOCK_NB) == 0) return "";
  std::array<char, 512> text{};
  const ssize_t n = ::read(fd, text.data(), text.size());
  return n > 0 ? std::string(text.data(), static_cast<std::size_t>(n)) : "another process";
}

FileLock::FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileLock::~FileLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace kvscope

#include "traces/raw_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>

#include "core/base/error.hpp"
#include "traces/schema.hpp"

namespace kvscope {

RawFile RawFile::open(const std::filesystem::path& path) {
  RawFile file;
  file.name_ = path.string();
  file.file_ = Descriptor(::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  if (!file.is_open()) throw IoError("cannot open {}: {}", file.name_, std::strerror(errno));
  return file;
}

void RawFile::write(std::uint64_t offset, const void* data, std::size_t n_bytes) {
  const char* next = static_cast<const char*>(data);
  while (n_bytes > 0) {
    const ssize_t n = ::pwrite(file_.get(), next, n_bytes, static_cast<off_t>(offset));
    if (n < 0) {
      if (errno == EINTR) continue;
      throw WriteRefused("cannot write {}: {}", name_, std::strerror(errno));
    }
    next += n;
    offset += static_cast<std::uint64_t>(n);
    n_bytes -= static_cast<std::size_t>(n);
  }
}

void RawFile::read(std::uint64_t offset, void* data, std::size_t n_bytes) const {
  char* next = static_cast<char*>(data);
  while (n_bytes > 0) {
    const ssize_t n = ::pread(file_.get(), next, n_bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw IoError("cannot read {}: {}", name_, std::strerror(errno));
    if (n == 0) throw IoError("{}: ended early; did another program cut it?", name_);
    next += n;
    offset += static_cast<std::uint64_t>(n);
    n_bytes -= static_cast<std::size_t>(n);
  }
}

void RawFile::sync() {
  if (::fsync(file_.get()) != 0)
    throw WriteRefused("cannot write {} to the device: {}", name_, std::strerror(errno));
}

// File systems without locks refuse the call; recording works there too, only unguarded.
void RawFile::lock_as_recorder() {
  (void)::flock(file_.get(), LOCK_SH | LOCK_NB);
}

void RawFile::close() {
  if (!is_open()) return;
  // A process that was forked meanwhile has the descriptor too, and would keep the lock.
  (void)::flock(file_.get(), LOCK_UN);
  file_.close();
}

bool is_being_recorded(const std::filesystem::path& path) {
  // It may be anything, a pipe too.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  return file.get() >= 0 && ::flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

bool is_unfinished_recording(const std::filesystem::path& path) {
  constexpr std::string_view kSignature = "\x89HDF\r\n\x1a\n";
  // Of a recorder that was killed before it wrote its header.
  constexpr std::size_t kLayoutBegun = 4096;
  constexpr std::size_t kHeader = std::size_t{1} << 20;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error || size == 0) return !error;
  std::string head(std::min<std::uintmax_t>(size, kHeader), '\0');
  std::ifstream in(path, std::ios::binary);
  in.read(head.data(), static_cast<std::streamsize>(head.size()));
  if (in.bad() || !in.is_open()) return true;  // nobody knows: it is not to be replaced
  head.resize(static_cast<std::size_t>(in.gcount()));
  if (!head.starts_with(kSignature)) return false;
  return size <= kLayoutBegun ||
         (head.find(schema::kFormat) != std::string::npos &&
          head.find(enum_name(TraceStatus::recording)) != std::string::npos);
}

std::filesystem::path part_path(const std::filesystem::path& out) {
  return out.string() + ".part";
}

bool is_part_path(const std::filesystem::path& path) {
  return path.extension() == ".part";
}

}  // namespace kvscope

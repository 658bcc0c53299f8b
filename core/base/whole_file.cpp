#include "core/base/whole_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/base/descriptor.hpp"
#include "core/base/error.hpp"
#include "core/base/number_text.hpp"
#include "core/base/read_files.hpp"

namespace kvscope {

namespace {

[[noreturn]] void fail_reading(const std::string& name, int reason) {
  const std::string sentence = fmt::format("cannot read {}: {}", name, std::strerror(reason));
  if (reason == ENOENT) throw MissingFile(sentence);
  throw IoError(sentence);
}

[[noreturn]] void fail_too_long(const std::string& name, std::size_t max_bytes) {
  throw IoError("{} is longer than {}", name, bytes_text(static_cast<double>(max_bytes)));
}

/// Without a file: with errno. A pipe is opened whether somebody writes to it or not; a device,
/// which may never end, is not.
Descriptor open_without_waiting(const std::filesystem::path& file) {
  Descriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  const int fd = opened.get();
  if (fd < 0) return opened;
  struct stat status {};
  if (::fstat(fd, &status) == 0 && !S_ISREG(status.st_mode) && !S_ISFIFO(status.st_mode)) {
    throw IoError(
        S_ISDIR(status.st_mode)
            ? fmt::format("{} is a folder, expected a file", file.string())
            : fmt::format("cannot read {}: it is a device, expected a file", file.string()));
  }
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);  // from now on its writer is waited for
  return opened;
}

}  // namespace

std::string read_whole_file(const std::filesystem::path& file, std::size_t max_bytes) {
  const bool is_stdin = file == "-";
  const std::string name = is_stdin ? "standard input" : file.string();
  const Descriptor opened = is_stdin ? Descriptor() : open_without_waiting(file);
  const int in = is_stdin ? STDIN_FILENO : opened.get();
  if (in < 0) fail_reading(name, errno);
  if (!is_stdin) note_read_file(in, file);
  struct stat status {};
  // Told before the memory is filled. What has no size (a pipe) is counted as it comes.
  if (::fstat(in, &status) == 0 && S_ISREG(status.st_mode) &&
      static_cast<std::uintmax_t>(status.st_size) > max_bytes) {
    fail_too_long(name, max_bytes);
  }
  std::string text;
  char buffer[1 << 16];
  for (ssize_t n = 0; (n = ::read(in, buffer, sizeof buffer)) != 0;) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_reading(name, errno);
    if (text.size() + static_cast<std::size_t>(n) > max_bytes) fail_too_long(name, max_bytes);
    text.append(buffer, static_cast<std::size_t>(n));
  }
  if (text.empty() && !is_stdin && S_ISFIFO(status.st_mode))
    throw IoError("cannot read {}: it is a pipe without a writer", name);
  return text;
}

std::vector<std::filesystem::path> sorted_entries(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  std::vector<fs::path> entries;
  std::error_code error;
  for (auto it = fs::directory_iterator(folder, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    entries.push_back(it->path());
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

void check_regular_file(const std::filesystem::path& file) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0) fail_reading(file.string(), errno);
  if (S_ISREG(status.st_mode)) return;
  throw IoError("cannot read {}: it is {}, expected a regular file", file.string(),
                S_ISDIR(status.st_mode) ? "a folder" : "a device or a pipe");
}

std::string read_regular_file(const std::filesystem::path& file, std::size_t max_bytes) {
  check_regular_file(file);
  return read_whole_file(file, max_bytes);
}

}  // namespace kvscope

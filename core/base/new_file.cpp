#include "core/base/new_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <random>
#include <system_error>
#include <vector>

#include "core/base/descriptor.hpp"
#include "core/base/error.hpp"
#include "core/base/read_files.hpp"
#include "core/base/whole_file.hpp"

namespace kvscope {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void fail_writing(const std::string& name, int reason) {
  throw WriteRefused("cannot write {}: {}", name, std::strerror(reason));
}

constexpr std::size_t kMostOfName = 200;

fs::path folder_holding(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

/// "run.csv.3f0c9ab2d4e85716.part"; long names are cut, since a file system allows 255 bytes.
fs::path temporary_name(const fs::path& target) {
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof number, GRND_NONBLOCK) != sizeof number) {
    std::random_device source;
    number = (std::uint64_t{source()} << 32) | source();
  }
  return folder_holding(target) /
         fmt::format("{}.{:016x}.part", target.filename().string().substr(0, kMostOfName), number);
}

/// Some file systems cannot sync (EINVAL, ENOTSUP): then there is nothing to wait for.
bool can_sync(int reason) {
  return reason != EINVAL && reason != ENOTSUP && reason != EROFS;
}

void sync_descriptor(int fd, const std::string& name) {
  if (::fsync(fd) != 0 && can_sync(errno))
    throw WriteRefused("cannot write {} to the device: {}", name, std::strerror(errno));
}

void give_name(const fs::path& from, const fs::path& to, bool overwrite) {
  refuse_read_file(to);  // read since the work began
  int status = -1;
  if (overwrite) {
    status = ::rename(from.c_str(), to.c_str());
  } else {
    status = ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE);
    if (status != 0 && (errno == EINVAL || errno == ENOSYS)) {
      std::error_code error;
      if (fs::exists(to, error)) {
        errno = EEXIST;
      } else {
        status = ::rename(from.c_str(), to.c_str());
      }
    }
  }
  if (status != 0) throw IoError("cannot give {} its name: {}", to.string(), std::strerror(errno));
}

/// Temporary files of this process, where a signal handler can find them: no lock, no memory.
struct Unfinished {
  std::atomic<bool> is_taken{false};
  std::atomic<bool> is_there{false};
  std::array<char, 4096> name{};
};
constexpr std::size_t kMostUnfinished = 1024;
constinit std::array<Unfinished, kMostUnfinished> unfinished;  // takes memory where it is used

/// -1 if there is no room for it.
int take_slot(const fs::path& temporary) {
  const std::string& name = temporary.native();
  for (std::size_t i = 0; i < kMostUnfinished && name.size() < unfinished[i].name.size(); ++i) {
    Unfinished& one = unfinished[i];
    if (one.is_taken.exchange(true)) continue;
    name.copy(one.name.data(), name.size());
    one.name[name.size()] = '\0';
    one.is_there.store(true);
    return static_cast<int>(i);
  }
  return -1;
}

void free_slot(int slot) {
  if (slot < 0) return;
  Unfinished& one = unfinished[static_cast<std::size_t>(slot)];
  one.is_there.store(false);
  one.is_taken.store(false);
}

/// "a.csv" of "a.csv.3f0c9ab2d4e85716.part"; empty for another name.
std::string_view target_of_temporary(std::string_view name) {
  constexpr std::string_view kEnd = ".part";
  constexpr std::size_t kDigits = 16;
  if (!name.ends_with(kEnd)) return {};
  name.remove_suffix(kEnd.size());
  if (name.size() < kDigits + 2 || name[name.size() - kDigits - 1] != '.') return {};
  const std::string_view digits = name.substr(name.size() - kDigits);
  if (digits.find_first_not_of("0123456789abcdef") != std::string_view::npos) return {};
  return name.substr(0, name.size() - kDigits - 1);
}

/// Nobody has it open who locked it (NewFile, HDF5), and nobody wrote to it lately. Where there are
/// no locks nothing is known.
bool is_abandoned(const fs::path& file, std::chrono::seconds age) {
  const Descriptor opened(::open(file.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (opened.get() < 0) return false;
  struct stat status {};
  const bool is_old = ::fstat(opened.get(), &status) == 0 && S_ISREG(status.st_mode) &&
                      status.st_mtime + age.count() <= std::time(nullptr);
  return is_old && ::flock(opened.get(), LOCK_EX | LOCK_NB) == 0;
}

/// Waits until the folder's names are on the device, where the file system can say so.
void sync_folder_of(const fs::path& file) {
  const Descriptor folder(::open(folder_holding(file).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0) return;  // a folder that may be written but not listed
  sync_descriptor(folder.get(), fmt::format("the folder of {}", file.string()));
}

}  // namespace

void remove_unfinished_files() {
  for (Unfinished& one : unfinished) {
    if (one.is_there.load()) ::unlink(one.name.data());
  }
}

void remove_old_temporaries(const fs::path& target, std::chrono::seconds age) {
  const std::string name = target.filename().native().substr(0, kMostOfName);
  for (const fs::path& file : sorted_entries(folder_holding(target))) {
    if (target_of_temporary(file.filename().native()) == name && is_abandoned(file, age))
      remove_quietly(file);
  }
}

void check_output(const fs::path& out, bool overwrite, std::optional<FileKind> written) {
  const auto refuse = [&](const std::string& why) {
    throw IoError("cannot write {}: {}", out.string(), why);
  };
  struct stat status {};
  const bool is_there = ::stat(out.c_str(), &status) == 0;
  if (out.filename().empty() || (is_there && S_ISDIR(status.st_mode))) {
    refuse("it is a folder, expected a file name");
  }
  if (out.extension() == ".part") {
    refuse("names that end in .part are for files that are not whole yet");
  }
  const fs::path folder = folder_holding(out);
  std::error_code error;
  if (!fs::is_directory(folder, error))
    refuse(fmt::format("there is no folder {}", folder.string()));
  if (is_there && !S_ISREG(status.st_mode)) {
    refuse("it is a device or a pipe, expected the name of a file");
  }
  struct stat link {};
  if (!is_there && ::lstat(out.c_str(), &link) == 0 && S_ISLNK(link.st_mode)) {
    refuse(fmt::format("it is a link to {}, which does not exist",
                       fs::read_symlink(out, error).string()));
  }
  if (is_there && !overwrite)
    throw IoError("{} exists; choose another name or ask to overwrite it", out.string());
  refuse_read_file(out);
  refuse_other_kind(out, written);
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    refuse(fmt::format("folder {}: {}", folder.string(), std::strerror(errno)));
  }
}

std::optional<fs::path> input_behind(const fs::path& out, std::span<const fs::path> inputs) {
  struct stat target {};
  if (out == "-" || ::stat(out.c_str(), &target) != 0) return std::nullopt;
  for (const fs::path& input : inputs) {
    struct stat source {};
    if (input == "-" || ::stat(input.c_str(), &source) != 0) continue;
    if (source.st_dev == target.st_dev && source.st_ino == target.st_ino) return input;
  }
  return std::nullopt;
}

NewFile::NewFile(fs::path target)
    : target_(std::move(target)),
      temporary_(temporary_name(target_)),
      slot_(take_slot(temporary_)) {}

NewFile::NewFile(fs::path target, bool overwrite, std::optional<FileKind> written)
    : NewFile(std::move(target)) {
  overwrite_ = overwrite;
  check_output(target_, overwrite, written);
}

NewFile::NewFile(NewFile&& other) noexcept
    : target_(std::move(other.target_)),
      temporary_(std::exchange(other.temporary_, {})),
      overwrite_(other.overwrite_),
      fd_(std::exchange(other.fd_, -1)),
      slot_(std::exchange(other.slot_, -1)) {}

NewFile::~NewFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) remove_quietly(temporary_);
  free_slot(slot_);
}

void NewFile::write(std::string_view bytes) {
  if (fd_ < 0) {
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd_ < 0) fail_writing(target_.string(), errno);
    (void)::flock(fd_, LOCK_SH | LOCK_NB);  // for remove_old_temporaries; some systems have none
  }
  write_all(fd_, bytes, target_.string());
}

void NewFile::publish(Sync sync) {
  if (fd_ < 0 && sync == Sync::yes) {
    publish_file(temporary_, target_, overwrite_);
    temporary_.clear();
    return;
  }
  if (sync == Sync::yes) {
    sync_descriptor(fd_, target_.string());
  } else if (fd_ >= 0 && ::close(std::exchange(fd_, -1)) != 0 && errno != EINTR) {
    fail_writing(target_.string(), errno);
  }
  give_name(temporary_, target_, overwrite_);
  temporary_.clear();
  if (sync == Sync::yes) sync_folder_of(target_);
}

int NewFile::release() {
  return std::exchange(fd_, -1);
}

void publish_file(const fs::path& from, const fs::path& to, bool overwrite) {
  // Whoever wrote it closed it; the bytes may still wait in the system's memory.
  Descriptor file(::open(from.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (file.get() < 0) fail_writing(from.string(), errno);
  sync_descriptor(file.get(), from.string());
  file.close();
  give_name(from, to, overwrite);
  sync_folder_of(to);
}

void write_new_file(const fs::path& target, std::string_view bytes, bool overwrite, Sync sync) {
  NewFile file(target, overwrite);
  file.write(bytes);
  file.publish(sync);
}

void write_all(int fd, std::string_view bytes, const std::string& name) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      fail_writing(name, errno);
    }
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

void remove_quietly(const fs::path& path) {
  std::error_code ignored;
  fs::remove(path, ignored);
}

}  // namespace kvscope

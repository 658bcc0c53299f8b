#include "core/base/read_files.hpp"

#include <sys/stat.h>

#include <atomic>

#include "core/base/error.hpp"

namespace kvscope {

namespace fs = std::filesystem;

namespace {

std::atomic<ReadFiles*> current{nullptr};
thread_local int n_own = 0;  // of OwnFiles

}  // namespace

ReadFiles::ReadFiles() : before_(current.exchange(this)) {}

ReadFiles::~ReadFiles() {
  current.store(before_);
}

void ReadFiles::note(dev_t device, ino_t inode, const fs::path& path) {
  const std::lock_guard lock(mutex_);
  files_.insert_or_assign({device, inode}, path);
}

std::optional<fs::path> ReadFiles::behind(const fs::path& out) const {
  struct stat target {};
  if (::stat(out.c_str(), &target) != 0) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const auto found = files_.find({target.st_dev, target.st_ino});
  if (found == files_.end()) return std::nullopt;
  // A file that is gone leaves its number to another one.
  struct stat source {};
  const bool is_there = ::stat(found->second.c_str(), &source) == 0 &&
                        source.st_dev == target.st_dev && source.st_ino == target.st_ino;
  return is_there ? std::optional(found->second) : std::nullopt;
}

void note_read_file(int fd, const fs::path& path) {
  ReadFiles* const to = current.load();
  struct stat status {};
  if (to == nullptr || n_own > 0 || ::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return;
  to->note(status.st_dev, status.st_ino, path);
}

void refuse_read_file(const fs::path& out) {
  const ReadFiles* const files = current.load();
  if (files == nullptr) return;
  if (const auto input = files->behind(out))
    throw ConfigError("cannot write {}: it is the input {}; results go to another file",
                      out.string(), input->string());
}

OwnFiles::OwnFiles() {
  ++n_own;
}

OwnFiles::~OwnFiles() {
  --n_own;
}

}  // namespace kvscope

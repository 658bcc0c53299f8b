#include "core/base/read_files.hpp"

#include <fmt/format.h>

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

void ReadFiles::note(const struct stat& status, const fs::path& path) {
  std::string version = fmt::format("{} {} {} {}.{}", status.st_dev, status.st_ino, status.st_size,
                                    status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
  const fs::path name = fs::absolute(path).lexically_normal();
  for (ReadFiles* work = this; work != nullptr; work = work->before_) {
    const std::lock_guard lock(work->mutex_);
    const auto known = work->versions_.find(name);
    if (known != work->versions_.end() && known->second != version) work->changed_ = path;
  }
  const std::lock_guard lock(mutex_);
  files_.insert_or_assign({status.st_dev, status.st_ino}, path);
  versions_.emplace(name, std::move(version));
}

void ReadFiles::require_unchanged() const {
  const std::lock_guard lock(mutex_);
  if (changed_)
    throw IoError(
        "{} was changed, or another file took its name, while it was in use: numbers of both would "
        "be mixed; the same command again computes those of the file as it is now",
        changed_->string());
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
  to->note(status, path);
}

void require_unchanged_inputs() {
  if (const ReadFiles* const files = current.load()) files->require_unchanged();
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

// Compiled alone: the callbacks of one HDF5 driver.
#include "traces/h5_device.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <new>

#include "core/base/read_files.hpp"
#include "core/base/shell_word.hpp"
#include "traces/h5_internal.hpp"

namespace kvscope::h5 {

Device::Device(const std::filesystem::path& path, Mode mode)
    : name_(path.string()), writable_(mode != Mode::read) {
  // O_NONBLOCK: a pipe without a writer must not hold us up before we see that it is one.
  int flags = O_CLOEXEC | O_NONBLOCK | (writable_ ? O_RDWR : O_RDONLY);
  if (mode == Mode::create) flags |= O_CREAT | O_EXCL;
  // A link may have been put there to lead us astray; reading does no harm.
  if (writable_) flags |= O_NOFOLLOW;
  const char* verb = mode == Mode::create ? "create" : "open";
  fd_ = ::open(path.c_str(), flags, 0666);
  if (fd_ < 0) throw IoError("cannot {} {}: {}", verb, name_, std::strerror(errno));
  h5::read_failure().clear();
  struct stat status {};
  const bool known = ::fstat(fd_, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    ::close(fd_);
    if (known && S_ISDIR(status.st_mode))
      throw IoError("{} is a folder, expected a file; kvscope info {} says what lies in it", name_,
                    shell_word(name_));
    throw IoError("cannot {} {}: it is not a regular file", verb, name_);
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
  if (mode == Mode::read) note_read_file(fd_, path);
}

Device::~Device() {
  if (fd_ < 0) return;
  unlock();
  ::close(fd_);
}

void Device::note(int reason) {
  if (write_error_ == 0) write_error_ = reason;
}

bool Device::read(std::uint64_t offset, void* out, std::size_t n_bytes) {
  std::size_t done = 0;
  while (done < n_bytes) {
    const ssize_t n = ::pread(fd_, static_cast<char*>(out) + done, n_bytes - done,
                              static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      read_failure_ = fmt::format("cannot read {}: {}", name_, std::strerror(errno));
      return false;
    }
    if (n == 0) {
      // Zeros in place of what was there would be numbers like any others.
      if (writable_ || offset + done >= size_) break;
      read_failure_ = fmt::format(
          "cannot read {}: it has fewer than the {} bytes that it was opened with: it was cut "
          "while it was read",
          name_, size_);
      return false;
    }
    done += static_cast<std::size_t>(n);
  }
  std::memset(static_cast<char*>(out) + done, 0, n_bytes - done);
  for (const Piece& piece : refused_) {
    const std::uint64_t begin = std::max(offset, piece.offset);
    const std::uint64_t end = std::min(offset + n_bytes, piece.offset + piece.bytes.size());
    if (begin >= end) continue;
    std::memcpy(static_cast<char*>(out) + (begin - offset),
                piece.bytes.data() + (begin - piece.offset), end - begin);
  }
  return true;
}

void Device::write(std::uint64_t offset, const void* data, std::size_t n_bytes) {
  const std::byte* next = static_cast<const std::byte*>(data);
  while (n_bytes > 0) {
    // After one refusal nothing is written any more: the file is lost, and the disk may be full.
    const ssize_t n =
        write_error_ != 0 ? -1 : ::pwrite(fd_, next, n_bytes, static_cast<off_t>(offset));
    if (n <= 0) {
      if (write_error_ == 0 && n < 0 && errno == EINTR) continue;
      note(n < 0 ? errno : ENOSPC);
      refused_.push_back({offset, {next, next + n_bytes}});
      size_ = std::max(size_, offset + n_bytes);
      return;
    }
    next += n;
    offset += static_cast<std::uint64_t>(n);
    n_bytes -= static_cast<std::size_t>(n);
    size_ = std::max(size_, offset);
  }
}

void Device::resize(std::uint64_t n_bytes) {
  if (n_bytes == size_ || write_error_ != 0) return;
  while (::ftruncate(fd_, static_cast<off_t>(n_bytes)) != 0) {
    if (errno == EINTR) continue;
    note(errno);
    return;
  }
  size_ = n_bytes;
}

bool Device::lock(bool exclusive) {
  constexpr int kMostInterrupted = 100;  // of a call that does not wait
  int n_interrupted = 0;
  while (::flock(fd_, (exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB) != 0) {
    if (errno == EINTR && ++n_interrupted < kMostInterrupted) continue;
    // Where there are no locks (NFS, Lustre, some read-only mounts), whoever only reads goes
    // without: the lock would keep writers away, and a trace under its name has none.
    const bool has_no_locks = errno == ENOLCK || errno == ENOSYS || errno == EOPNOTSUPP;
    if (!exclusive && !writable_ && has_no_locks) return true;
    lock_error_ = errno;
    return false;
  }
  return true;
}

// A process that was forked meanwhile has the descriptor too: closing it does not unlock.
void Device::unlock() {
  (void)::flock(fd_, LOCK_UN);
}

void Device::check() const {
  if (write_error_ == 0) return;
  throw WriteRefused("cannot write {}: {}", name_, std::strerror(write_error_));
}

void Device::finish() {
  if (fd_ < 0) return;
  // EINVAL, ENOTSUP: a file system that cannot sync; there is nothing to wait for.
  if (writable_ && write_error_ == 0 && ::fsync(fd_) != 0 && errno != EINVAL && errno != ENOTSUP) {
    note(errno);
  }
  unlock();
  if (::close(std::exchange(fd_, -1)) != 0 && errno != EINTR && writable_) note(errno);
  check();
}

namespace {

/// HDF5's view of a file: its own struct first, as it demands.
struct Opened {
  H5FD_t base{};
  std::shared_ptr<Device> device;
  haddr_t end_of_space = 0;  // what HDF5 has given out
};

/// The file that the next opening gets; all of this happens under the global lock.
std::shared_ptr<Device>& handed_over() {
  static std::shared_ptr<Device> device;
  return device;
}

Opened* self(H5FD_t* file) {
  return reinterpret_cast<Opened*>(file);
}
const Opened* self(const H5FD_t* file) {
  return reinterpret_cast<const Opened*>(file);
}

bool is_in_range(haddr_t address, std::size_t n_bytes) {
  constexpr haddr_t kMost = std::numeric_limits<std::int64_t>::max();
  return address != HADDR_UNDEF && address <= kMost && n_bytes <= kMost - address;
}

/// Into HDF5's error stack, so that the sentence reads like its own.
herr_t fail(const char* function, hid_t kind, const char* words) {
  H5Epush2(H5E_DEFAULT, "h5_device.cpp", function, 0, H5E_ERR_CLS, H5E_VFL, kind, "%s", words);
  return -1;
}

H5FD_t* device_open(const char* /*name*/, unsigned /*flags*/, hid_t /*list*/, haddr_t /*most*/) {
  if (!handed_over()) {
    fail("device_open", H5E_CANTOPENFILE, "the file wants to open another one, which is refused");
    return nullptr;
  }
  auto* opened = new (std::nothrow) Opened;
  if (opened == nullptr) return nullptr;
  opened->device = std::exchange(handed_over(), nullptr);
  return &opened->base;
}

herr_t device_close(H5FD_t* file) {
  delete self(file);
  return 0;
}

herr_t device_query(const H5FD_t* /*file*/, unsigned long* flags) {
  if (flags == nullptr) return 0;
  // Those of HDF5's own driver for plain files: the files come out the same.
  *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
           H5FD_FEAT_AGGREGATE_SMALLDATA | H5FD_FEAT_POSIX_COMPAT_HANDLE |
           H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
  return 0;
}

haddr_t device_end_of_space(const H5FD_t* file, H5FD_mem_t /*kind*/) {
  return self(file)->end_of_space;
}

herr_t device_set_end_of_space(H5FD_t* file, H5FD_mem_t /*kind*/, haddr_t address) {
  self(file)->end_of_space = address;
  return 0;
}

haddr_t device_end_of_file(const H5FD_t* file, H5FD_mem_t /*kind*/) {
  return self(file)->device->size_bytes();
}

herr_t device_read(H5FD_t* file, H5FD_mem_t /*kind*/, hid_t /*list*/, haddr_t address,
                   std::size_t n_bytes, void* out) {
  if (!is_in_range(address, n_bytes)) {
    return fail("device_read", H5E_OVERFLOW, "an address beyond every file");
  }
  if (self(file)->device->read(address, out, n_bytes)) return 0;
  read_failure() = self(file)->device->read_failure();
  return fail("device_read", H5E_READERROR, read_failure().c_str());
}

/// HDF5 asks for it where the path is a symbolic link, to see that the link still leads to
/// what was opened.
herr_t device_handle(H5FD_t* file, hid_t /*list*/, void** descriptor) {
  if (descriptor == nullptr)
    return fail("device_handle", H5E_BADVALUE, "no place for the descriptor");
  *descriptor = self(file)->device->descriptor_place();
  return 0;
}

herr_t device_write(H5FD_t* file, H5FD_mem_t /*kind*/, hid_t /*list*/, haddr_t address,
                    std::size_t n_bytes, const void* data) {
  if (!is_in_range(address, n_bytes)) {
    return fail("device_write", H5E_OVERFLOW, "an address beyond every file");
  }
  self(file)->device->write(address, data, n_bytes);
  return 0;
}

herr_t device_truncate(H5FD_t* file, hid_t /*list*/, hbool_t /*closing*/) {
  self(file)->device->resize(self(file)->end_of_space);
  return 0;
}

herr_t device_lock(H5FD_t* file, hbool_t exclusive) {
  if (self(file)->device->lock(exclusive)) return 0;
  return fail("device_lock", H5E_CANTLOCKFILE, "unable to lock file");
}

herr_t device_unlock(H5FD_t* file) {
  self(file)->device->unlock();
  return 0;
}

hid_t driver() {
  static const hid_t id = [] {
    static H5FD_class_t type{};
#ifdef H5FD_CLASS_VERSION  // HDF5 1.14 and newer refuse drivers that do not name these
    type.version = H5FD_CLASS_VERSION;
    type.value = 300;  // a number of the range left to drivers that stay in their program
#endif
    type.name = "kvscope";
    type.maxaddr = std::numeric_limits<std::int64_t>::max();
    type.fc_degree = H5F_CLOSE_WEAK;
    type.open = device_open;
    type.close = device_close;
    type.query = device_query;
    type.get_eoa = device_end_of_space;
    type.set_eoa = device_set_end_of_space;
    type.get_eof = device_end_of_file;
    type.get_handle = device_handle;
    type.read = device_read;
    type.write = device_write;
    type.truncate = device_truncate;
    type.lock = device_lock;
    type.unlock = device_unlock;
    const H5FD_mem_t one_list[] = H5FD_FLMAP_DICHOTOMY;
    std::copy(std::begin(one_list), std::end(one_list), type.fl_map);
    return H5FDregister(&type);
  }();
  return id;
}

}  // namespace

AccessOnce::AccessOnce(std::shared_ptr<Device> device) : list_(H5Pcreate(H5P_FILE_ACCESS)) {
  H5Pset_fclose_degree(list_.get(), H5F_CLOSE_STRONG);
  check_io(H5Pset_driver(list_.get(), driver(), nullptr), "cannot use a driver of HDF5");
  handed_over() = std::move(device);
}

AccessOnce::~AccessOnce() {
  handed_over().reset();
}

}  // namespace kvscope::h5

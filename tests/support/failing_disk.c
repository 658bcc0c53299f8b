/* A disk that fails, for tests: loaded before the C library (LD_PRELOAD), it counts calls on files and
   lets chosen ones fail. It also writes down what reaches the disk, in its order.

   KVSCOPE_FAIL_CALL   which calls count. A kind: write (write, pwrite, ftruncate on regular files),
                       sync (fsync, fdatasync), name (rename) or lock (flock); or one function: write(),
                       pwrite(), fsync(), close(), rename(), open(), ftruncate(), read(), pread(), mmap(),
                       unlink()
   KVSCOPE_FAIL_AT     the number of the first call that fails, from 1; 0 = none
   KVSCOPE_FAIL_FOR    how many calls fail from there (default 1)
   KVSCOPE_FAIL_ERRNO  what they say (default 5, EIO); 0 = nothing, but half of the bytes are
                       transferred
   KVSCOPE_FAIL_SIGNAL a signal that the process sends to itself at that call, which then goes well
   KVSCOPE_FAIL_DIR    only files below this folder count
   KVSCOPE_FAIL_COUNT  a file that holds the number of calls, of this process and all that it forks
   KVSCOPE_DISK_LOG    a file that gets a line for each call, in their order: write or sync and the
                       file or folder, or name and the new name
   KVSCOPE_DISK_TAPE   a file that gets every change below KVSCOPE_FAIL_DIR with its bytes, for
                       tests/faults/power_cut.py: "OP|LENGTH|OFFSET|NUMBER|PATH|PATH\n", then LENGTH bytes */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *chosen, *folder, *log_file, *tape_file;
static long first, how_many;
static int what_errno, what_signal;
static atomic_long own_count;
static atomic_long* count = &own_count; /* in the file of KVSCOPE_FAIL_COUNT, if there is one */

static long number_of(const char* name, long otherwise) {
  const char* text = getenv(name);
  return text ? atol(text) : otherwise;
}

__attribute__((constructor)) static void begin(void) {
  chosen = getenv("KVSCOPE_FAIL_CALL");
  folder = getenv("KVSCOPE_FAIL_DIR");
  log_file = getenv("KVSCOPE_DISK_LOG");
  tape_file = getenv("KVSCOPE_DISK_TAPE");
  first = number_of("KVSCOPE_FAIL_AT", 0);
  how_many = number_of("KVSCOPE_FAIL_FOR", 1);
  what_errno = (int)number_of("KVSCOPE_FAIL_ERRNO", EIO);
  what_signal = (int)number_of("KVSCOPE_FAIL_SIGNAL", 0);
  const char* file = getenv("KVSCOPE_FAIL_COUNT");
  if (!file) return;
  const int fd = (int)syscall(SYS_openat, AT_FDCWD, file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return;
  if (syscall(SYS_ftruncate, fd, sizeof own_count) == 0) {
    void* shared = (void*)syscall(SYS_mmap, 0, sizeof own_count, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared != MAP_FAILED) count = shared;
  }
  syscall(SYS_close, fd);
}

/* The folder itself, too, whose name ends in a slash there. */
static int is_below(const char* path) {
  const size_t n = folder ? strlen(folder) : 0;
  return !folder || strncmp(path, folder, n) == 0 || (strlen(path) + 1 == n && strncmp(path, folder, n - 1) == 0);
}

/* The file's path; empty if there is none. */
static void path_of(int fd, char* path, size_t size) {
  char link[64];
  const int before = errno;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t n = (ssize_t)syscall(SYS_readlink, link, path, size - 1);
  path[n > 0 ? n : 0] = '\0';
  errno = before;
}

static int counts_fd(int fd) {
  if (fd <= 2 || !chosen) return 0;
  if (!folder) return 1;
  char path[4200];
  path_of(fd, path, sizeof path);
  return is_below(path);
}

static int counts_path(const char* path) {
  if (!chosen || !path) return 0;
  if (!folder || path[0] == '/') return is_below(path);
  char here[4200];
  return syscall(SYS_getcwd, here, sizeof here) > 0 && is_below(here);
}

enum outcome { goes_well, fails, is_short };

/* What becomes of this call; errno is set where it fails. */
static enum outcome outcome_of(const char* kind, const char* function) {
  if (!chosen || (strcmp(chosen, function) != 0 && (!kind || strcmp(chosen, kind) != 0))) return goes_well;
  const long call = atomic_fetch_add(count, 1) + 1;
  if (first < 1 || call < first || call - first >= how_many) return goes_well;
  if (what_signal) {
    kill(getpid(), what_signal);
    return goes_well;
  }
  if (what_errno == 0) return is_short;
  errno = what_errno;
  return fails;
}

static void log_line(const char* what, const char* path) {
  if (!log_file) return;
  char line[8192];
  const int n = snprintf(line, sizeof line, "%s %s\n", what, path);
  const int log = (int)syscall(SYS_openat, AT_FDCWD, log_file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (log < 0) return;
  if (n > 0 && n < (int)sizeof line) syscall(SYS_write, log, line, n);
  syscall(SYS_close, log);
}

static void log_call(const char* what, int fd) {
  if (!log_file) return;
  char path[4200];
  path_of(fd, path, sizeof path);
  log_line(what, path);
}

/* From the root on; "" stays what it is. */
static const char* whole_path(const char* path, char* whole, size_t size) {
  char here[4200];
  if (!path || !path[0] || path[0] == '/' || syscall(SYS_getcwd, here, sizeof here) <= 0) return path;
  return snprintf(whole, size, "%s/%s", here, path) < (int)size ? whole : path;
}

/* Of several processes one after the other: a record is written whole. */
static void tape(const char* op, const char* path, const char* to, long offset, long number, const void* data, size_t n) {
  if (!tape_file) return;
  char whole[8500], whole_to[8500];
  path = whole_path(path, whole, sizeof whole);
  to = whole_path(to, whole_to, sizeof whole_to);
  if (!is_below(to ? to : path)) return;
  const int before = errno;
  const int fd = (int)syscall(SYS_openat, AT_FDCWD, tape_file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) return;
  syscall(SYS_flock, fd, LOCK_EX);
  char head[18000];
  const int m = snprintf(head, sizeof head, "%s|%zu|%ld|%ld|%s|%s\n", op, n, offset, number, path, to ? to : "");
  if (m > 0 && m < (int)sizeof head) {
    syscall(SYS_write, fd, head, m);
    if (n > 0) syscall(SYS_write, fd, data, n);
  }
  syscall(SYS_close, fd);
  errno = before;
}

static void tape_fd(const char* op, int fd, long offset, long number, const void* data, size_t n) {
  if (!tape_file) return;
  char path[4200];
  path_of(fd, path, sizeof path);
  tape(op, path, NULL, offset, number, data, n);
}

static int is_file(int fd) {
  struct stat status;
  return fd > 2 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

/* Bytes to transfer of n, or -1 with errno. */
static ssize_t part_of(int fd, size_t n, const char* kind, const char* function) {
  if (!counts_fd(fd)) return (ssize_t)n;
  const enum outcome outcome = outcome_of(kind, function);
  return outcome == fails ? -1 : outcome == is_short && n > 1 ? (ssize_t)(n / 2) : (ssize_t)n;
}

ssize_t pwrite64(int fd, const void* data, size_t n, off64_t offset) {
  if (!is_file(fd)) return syscall(SYS_pwrite64, fd, data, n, offset);
  log_call("write", fd);
  const ssize_t part = part_of(fd, n, "write", "pwrite()");
  const ssize_t done = part < 0 ? -1 : syscall(SYS_pwrite64, fd, data, part, offset);
  if (done > 0) tape_fd("write", fd, offset, 0, data, (size_t)done);
  return done;
}

ssize_t pwrite(int fd, const void* data, size_t n, off_t offset) { return pwrite64(fd, data, n, offset); }

ssize_t write(int fd, const void* data, size_t n) {
  if (!is_file(fd)) return syscall(SYS_write, fd, data, n);
  log_call("write", fd);
  const ssize_t part = part_of(fd, n, "write", "write()");
  const ssize_t done = part < 0 ? -1 : syscall(SYS_write, fd, data, part);
  if (done > 0 && tape_file) tape_fd("write", fd, lseek(fd, 0, SEEK_CUR) - done, 0, data, (size_t)done);
  return done;
}

int ftruncate64(int fd, off64_t size) {
  log_call("write", fd);
  if (counts_fd(fd) && outcome_of("write", "ftruncate()") == fails) return -1;
  const int status = (int)syscall(SYS_ftruncate, fd, size);
  if (status == 0) tape_fd("size", fd, 0, size, NULL, 0);
  return status;
}

int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

static int sync_with(long number, int fd) {
  log_call("sync", fd);
  if (counts_fd(fd) && outcome_of("sync", "fsync()") == fails) return -1;
  const int status = (int)syscall(number, fd);
  if (status == 0) tape_fd("sync", fd, 0, 0, NULL, 0);
  return status;
}

int fsync(int fd) { return sync_with(SYS_fsync, fd); }

int fdatasync(int fd) { return sync_with(SYS_fdatasync, fd); }

int flock(int fd, int operation) {
  if (counts_fd(fd) && outcome_of("lock", "flock()") == fails) return -1;
  return (int)syscall(SYS_flock, fd, operation);
}

int renameat2(int from_fd, const char* from, int to_fd, const char* to, unsigned flags) {
  log_line("name", to);
  if (counts_path(to) && outcome_of("name", "rename()") == fails) return -1;
  const int status = (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, flags);
  if (status == 0) tape("name", from, to, 0, 0, NULL, 0);
  return status;
}

int rename(const char* from, const char* to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }

/* The C++ library's filesystem::remove comes through remove(). */
static int unlink_with(const char* path, int flags) {
  if (counts_path(path) && outcome_of(NULL, "unlink()") == fails) return -1;
  const int status = (int)syscall(SYS_unlinkat, AT_FDCWD, path, flags);
  if (status == 0) tape("gone", path, NULL, 0, 0, NULL, 0);
  return status;
}

int unlink(const char* path) { return unlink_with(path, 0); }

int remove(const char* path) {
  const int status = unlink_with(path, 0);
  return status < 0 && (errno == EISDIR || errno == EPERM) ? unlink_with(path, AT_REMOVEDIR) : status;
}

static int open_with(const char* path, int flags, mode_t mode) {
  if (counts_path(path) && outcome_of(NULL, "open()") == fails) return -1;
  const int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
  if (fd >= 0 && (flags & O_CREAT)) tape("made", path, NULL, 0, flags & O_TRUNC ? 1 : 0, NULL, 0);
  return fd;
}

static mode_t mode_of(int flags, va_list more) { return flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, mode_t) : 0; }

int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = mode_of(flags, more);
  va_end(more);
  return open_with(path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = mode_of(flags, more);
  va_end(more);
  return open_with(path, flags, mode);
}

int __open_2(const char* path, int flags) { return open_with(path, flags, 0); }

int __open64_2(const char* path, int flags) { return open_with(path, flags, 0); }

int close(int fd) {
  /* The descriptor is gone in any case, as Linux has it. */
  const int is_counted = chosen && strcmp(chosen, "close()") == 0 && counts_fd(fd);
  const int status = (int)syscall(SYS_close, fd);
  return is_counted && outcome_of(NULL, "close()") == fails ? -1 : status;
}

ssize_t read(int fd, void* data, size_t n) {
  const ssize_t part = part_of(fd, n, NULL, "read()");
  return part < 0 ? -1 : syscall(SYS_read, fd, data, part);
}

ssize_t __read_chk(int fd, void* data, size_t n, size_t room) {
  (void)room;
  return read(fd, data, n);
}

ssize_t pread64(int fd, void* data, size_t n, off64_t offset) {
  const ssize_t part = part_of(fd, n, NULL, "pread()");
  return part < 0 ? -1 : syscall(SYS_pread64, fd, data, part, offset);
}

ssize_t pread(int fd, void* data, size_t n, off_t offset) { return pread64(fd, data, n, offset); }

ssize_t __pread_chk(int fd, void* data, size_t n, off_t offset, size_t room) {
  (void)room;
  return pread64(fd, data, n, offset);
}

ssize_t __pread64_chk(int fd, void* data, size_t n, off64_t offset, size_t room) {
  (void)room;
  return pread64(fd, data, n, offset);
}

void* mmap64(void* at, size_t n, int protection, int flags, int fd, off64_t offset) {
  if (fd >= 0 && counts_fd(fd) && outcome_of(NULL, "mmap()") == fails) return MAP_FAILED;
  return (void*)syscall(SYS_mmap, at, n, protection, flags, fd, offset);
}

void* mmap(void* at, size_t n, int protection, int flags, int fd, off_t offset) {
  return mmap64(at, n, protection, flags, fd, offset);
}

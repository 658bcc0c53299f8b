/* A disk that fails, for tests: loaded before the C library (LD_PRELOAD), it counts the calls that put
   data into regular files and lets chosen ones fail.

   KVSCOPE_FAIL_CALL   write (write, pwrite, ftruncate), sync (fsync, fdatasync), name (rename) or
                       lock (flock)
   KVSCOPE_FAIL_AT     the number of the first call that fails, from 1; 0 = none
   KVSCOPE_FAIL_FOR    how many calls fail from there (default 1)
   KVSCOPE_FAIL_ERRNO  what they say (default 5, EIO)
   KVSCOPE_FAIL_COUNT  a file that gets the number of calls when the program ends in good order
   KVSCOPE_DISK_LOG    a file that gets a line for each call, in their order: write or sync and the
                       file or folder, or name and the new name */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_long n_calls;

static long number_of(const char* name, long otherwise) {
  const char* text = getenv(name);
  return text ? atol(text) : otherwise;
}

/* True if this call of the kind has to fail; errno is set. */
static int fails(const char* kind) {
  const char* chosen = getenv("KVSCOPE_FAIL_CALL");
  if (!chosen || strcmp(chosen, kind) != 0) return 0;
  const long call = atomic_fetch_add(&n_calls, 1) + 1;
  const long first = number_of("KVSCOPE_FAIL_AT", 0);
  if (first < 1 || call < first || call >= first + number_of("KVSCOPE_FAIL_FOR", 1)) return 0;
  errno = (int)number_of("KVSCOPE_FAIL_ERRNO", EIO);
  return 1;
}

static void log_line(const char* what, const char* path) {
  const char* file = getenv("KVSCOPE_DISK_LOG");
  if (!file) return;
  char line[8192];
  const int n = snprintf(line, sizeof line, "%s %s\n", what, path);
  const int log = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (log < 0) return;
  if (n > 0 && n < (int)sizeof line) syscall(SYS_write, log, line, n);
  close(log);
}

static void log_call(const char* what, int fd) {
  if (!getenv("KVSCOPE_DISK_LOG")) return;
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t n = readlink(link, path, sizeof path - 1);
  if (n < 0) return;
  path[n] = '\0';
  log_line(what, path);
}

static int is_file(int fd) {
  struct stat status;
  return fd > 2 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

__attribute__((destructor)) static void tell(void) {
  const char* file = getenv("KVSCOPE_FAIL_COUNT");
  if (!file) return;
  char text[32];
  const int n = snprintf(text, sizeof text, "%ld\n", (long)n_calls);
  const int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (fd >= 0) {
    syscall(SYS_write, fd, text, n);
    close(fd);
  }
}

ssize_t pwrite64(int fd, const void* data, size_t n, off64_t offset) {
  if (is_file(fd)) log_call("write", fd);
  if (is_file(fd) && fails("write")) return -1;
  return syscall(SYS_pwrite64, fd, data, n, offset);
}

ssize_t pwrite(int fd, const void* data, size_t n, off_t offset) {
  return pwrite64(fd, data, n, offset);
}

ssize_t write(int fd, const void* data, size_t n) {
  if (is_file(fd)) log_call("write", fd);
  if (is_file(fd) && fails("write")) return -1;
  return syscall(SYS_write, fd, data, n);
}

int ftruncate64(int fd, off64_t size) {
  log_call("write", fd);
  if (fails("write")) return -1;
  return (int)syscall(SYS_ftruncate, fd, size);
}

int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

int fsync(int fd) {
  log_call("sync", fd);
  if (fails("sync")) return -1;
  return (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd) {
  log_call("sync", fd);
  if (fails("sync")) return -1;
  return (int)syscall(SYS_fdatasync, fd);
}

int flock(int fd, int operation) {
  if (fails("lock")) return -1;
  return (int)syscall(SYS_flock, fd, operation);
}

int rename(const char* from, const char* to) {
  log_line("name", to);
  if (fails("name")) return -1;
  return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int renameat2(int from_fd, const char* from, int to_fd, const char* to, unsigned flags) {
  log_line("name", to);
  if (fails("name")) return -1;
  return (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, flags);
}

#include "core/base/mapped_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <system_error>

#include "core/base/descriptor.hpp"
#include "core/base/error.hpp"
#include "core/base/read_files.hpp"

namespace kvscope {

namespace {

[[noreturn]] void fail(const char* what, const std::filesystem::path& path, int error_number) {
  const std::string sentence = fmt::format("cannot {} {}: {}", what, path.string(),
                                           std::generic_category().message(error_number));
  if (error_number == ENOENT) throw MissingFile(sentence);
  throw IoError(sentence);
}

/// The mappings of this process, where a signal handler can find them: no lock, no memory.
struct Mapping {
  std::atomic<const char*> name{nullptr};  // null: free; set last and cleared first
  std::atomic<const std::byte*> data{nullptr};
  std::atomic<std::size_t> size{0};
};
std::array<Mapping, 1024> mappings;

void remember(const char* name, const std::byte* data, std::size_t size) {
  for (Mapping& mapping : mappings) {
    const std::byte* expected = nullptr;
    if (!mapping.data.compare_exchange_strong(expected, data)) continue;
    mapping.size.store(size);
    mapping.name.store(name);
    return;
  }
}

void forget(const std::byte* data) {
  for (Mapping& mapping : mappings) {
    if (mapping.data.load() != data) continue;
    mapping.name.store(nullptr);
    mapping.size.store(0);
    mapping.data.store(nullptr);
    return;
  }
}

}  // namespace

const char* mapped_file_at(const void* address) {
  for (const Mapping& mapping : mappings) {
    const std::byte* const data = mapping.data.load();
    const auto* const at = static_cast<const std::byte*>(address);
    if (data != nullptr && at >= data && at < data + mapping.size.load())
      return mapping.name.load();
  }
  return nullptr;
}

MappedFile::MappedFile(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a named pipe must not wait for a writer before we can refuse it.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) fail("open", path, errno);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) fail("examine", path, errno);
  if (S_ISDIR(info.st_mode)) fail("read", path, EISDIR);
  if (!S_ISREG(info.st_mode)) {
    throw IoError("cannot map {}: expected a regular file, found a device, pipe or socket",
                  path.string());
  }
  note_read_file(file.get(), path);
  if (info.st_size == 0) return;  // mmap refuses a length of zero
  const auto size = static_cast<std::size_t>(info.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) fail("map", path, errno);
  data_ = static_cast<const std::byte*>(data);
  size_ = size;
  const std::string& name = path.native();
  name_ = std::make_unique<char[]>(name.size() + 1);
  std::copy(name.begin(), name.end(), name_.get());
  remember(name_.get(), data_, size_);
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  forget(data_);
  ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      name_(std::move(other.name_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(name_, other.name_);
  return *this;
}

void forget_pages(std::span<const std::byte> bytes) {
  // Anonymous memory would come back as zeros: only what is known to be a mapping's.
  if (bytes.empty() || mapped_file_at(&bytes.front()) == nullptr ||
      mapped_file_at(&bytes.front()) != mapped_file_at(&bytes.back()))
    return;
  static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::uintptr_t first = (begin + page - 1) / page * page;
  const std::uintptr_t end = (begin + bytes.size()) / page * page;
  // Advice only: where it fails, the pages stay until the system needs their room.
  if (first < end) ::madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
}

}  // namespace kvscope

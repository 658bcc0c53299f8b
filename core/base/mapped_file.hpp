// A file mapped read-only into memory: its bytes are read from disk only where they are touched.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

namespace kvscope {

/// Owns one read-only mapping of a whole regular file; move only. The mapping outlives the
/// directory entry, but a file that another process cuts short while it is mapped, and a disk that
/// fails, end this one (SIGBUS): the program says which file it was (mapped_file_at).
class MappedFile {
 public:
  /// No file: bytes() is empty.
  MappedFile() = default;
  /// Maps all of `path` (an empty file maps to no bytes). Throws IoError if it cannot be opened or
  /// is not a regular file.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  std::size_t size() const { return size_; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::unique_ptr<char[]> name_;  // what mapped_file_at answers
};

/// The name of the mapped file that the address lies in; null if there is none. Safe in signal
/// handlers. Knows the first thousand mappings at a time.
const char* mapped_file_at(const void* address);

/// Says that these mapped bytes were read and will not be soon: whole pages inside of them leave
/// the process's memory, and come back from the file if they are touched after all. Leaves memory
/// alone that is no mapped file's.
void forget_pages(std::span<const std::byte> bytes);

}  // namespace kvscope

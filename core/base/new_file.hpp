// The one way in which kvscope makes a file: under a temporary name beside the target, which it
// gets when every byte is on the device.
//
// So a name never stands for half a file, an older file stays until the new one is whole, and of
// two processes that write one name the last whole file wins. The temporary name cannot be guessed
// and is made, never opened: no link that lies there is followed, no file of the user is lost.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/file_kind.hpp"

namespace kvscope {

/// Throws IoError unless a file named `out` can be made: its folder exists and may be
/// written; `out` is no folder, device, pipe or link to nothing; it does not exist yet or
/// may be overwritten, and then is of the kind that is written (refuse_other_kind). Throws
/// ConfigError if it is a file that was read (read_files.hpp).
void check_output(const std::filesystem::path& out, bool overwrite,
                  std::optional<FileKind> written = {});

/// The input that `out` is, under whatever name (same device and inode); empty if it is none. "-"
/// and names of nothing are passed over.
std::optional<std::filesystem::path> input_behind(const std::filesystem::path& out,
                                                  std::span<const std::filesystem::path> inputs);

/// Whether publish() waits until the bytes are on the device. `no` is for files that are written
/// many times a minute and are worth nothing after a power cut.
enum class Sync { yes, no };

/// A file on its way to its name. Without publish() it goes away with this object.
class NewFile {
 public:
  /// Checks the target as check_output does; makes nothing yet.
  NewFile(std::filesystem::path target, bool overwrite, std::optional<FileKind> written = {});
  /// For a temporary that is not to become `target` itself, which is not looked at.
  static NewFile beside(std::filesystem::path target) { return NewFile(std::move(target)); }
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();

  const std::filesystem::path& target() const { return target_; }
  /// The name until publish(), for libraries that make the file themselves (they have to insist on
  /// making it: O_EXCL).
  const std::filesystem::path& temporary() const { return temporary_; }

  /// Appends; makes the file at the first call. All bytes or an IoError.
  void write(std::string_view bytes);
  /// Puts the file on the device, checks that this worked, and gives it its name.
  void publish(Sync sync = Sync::yes);
  /// The descriptor behind write(), whose owner is now the caller; for files that grow further
  /// under their name. -1 if nothing was written.
  int release();

 private:
  explicit NewFile(std::filesystem::path target);

  std::filesystem::path target_;
  std::filesystem::path temporary_;
  bool overwrite_ = false;
  int fd_ = -1;
  int slot_ = -1;  // where remove_unfinished_files finds it
};

/// The last step alone, for a file that grew under a fixed name: syncs `from`, gives it the name
/// `to` and syncs the folder. Throws IoError if `to` exists and may not be overwritten.
void publish_file(const std::filesystem::path& from, const std::filesystem::path& to,
                  bool overwrite);

/// A whole file at once.
void write_new_file(const std::filesystem::path& target, std::string_view bytes, bool overwrite,
                    Sync sync = Sync::yes);

/// All bytes to the descriptor or an IoError that names `name`.
void write_all(int fd, std::string_view bytes, const std::string& name);

/// Removes what every NewFile of this process has begun and not published: for signal handlers,
/// before they end the process. Of more than a thousand at a time, the rest stays.
void remove_unfinished_files();

/// Removes temporary files of `target` that nobody works on any more: left by a process that was
/// killed, older than `age`, and locked by nobody. Never throws. Who goes on with the dead one's
/// work need not wait: a living writer holds its lock.
void remove_old_temporaries(const std::filesystem::path& target,
                            std::chrono::seconds age = std::chrono::hours(1));

/// Removes a file if it is there; never throws.
void remove_quietly(const std::filesystem::path& path);

}  // namespace kvscope

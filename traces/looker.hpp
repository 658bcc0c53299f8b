// A process beside this one that opens files in its place, and may die of them.
//
// It is a fork of this program, so it opens a file exactly as the program would. It answers one
// question after the other, with limits on processor time and memory, and ends with its program: an
// idle one when the other end of its socket is gone, a busy one by a signal. It holds none of the
// program's files open, and it has the program's memory as it was when it was started, at no cost
// until the program writes there.
#pragma once

#include <sys/types.h>

#include <compare>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace kvscope {

/// Opens a file and lets go of it. A function of the program, since the other process has its code;
/// what it needs to know beside the path has to fit into `options`.
using OpenFunction = void (*)(const std::filesystem::path& path, unsigned options);

/// What tells one state of a file from another.
struct FileStamp {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::int64_t size = 0;
  std::int64_t changed_s = 0;
  std::int64_t changed_ns = 0;

  auto operator<=>(const FileStamp&) const = default;  // NOLINT(modernize-use-nullptr)
  /// Empty for what is no regular file.
  static std::optional<FileStamp> of(const std::filesystem::path& path);
};

struct Answer {
  enum class Kind : char {
    good = 'g',
    config_error = 'c',
    io_error = 'i',
    format_error = 'f',
    no_memory = 'm',
    elsewhere = 'e',  // the path leads to another file there (/dev/stdin, another root)
    too_long = 't',
    died = 'd',
    ended = 'k',  // somebody ended the process: by hand, or for want of memory
  };
  Kind kind = Kind::died;
  std::string words;  // of the error, or what happened
};

class Looker {
 public:
  static constexpr int kMostSeconds = 10;  // of processor time, for one file
  static constexpr int kMostWait = 30;     // seconds by the clock
  static constexpr std::uint64_t kSpareBytes = std::uint64_t{1} << 30;  // beyond the file's own

  /// One that stays has closed the program's files and does not write to its terminal; one for a
  /// single question still has them, so that /dev/stdin is what it was.
  enum class Life { stays, one_question };

  /// Empty if no process is to be had. Safe in a program with threads: see first_look.hpp.
  static std::unique_ptr<Looker> start(Life life);
  /// Kills the process and waits until it is gone; does neither in a fork of the program
  /// that made it.
  ~Looker();
  Looker(const Looker&) = delete;
  Looker& operator=(const Looker&) = delete;

  /// Waits for the answer. After any but `good` the process is not to be asked again: it may be
  /// gone, or no longer sound.
  Answer ask(const std::filesystem::path& path, const FileStamp& stamp, OpenFunction open,
             unsigned options);
  /// False in a fork of the program that made it.
  bool is_ours() const;
  pid_t process() const { return process_; }

  /// True in the other process: a file that is opened there needs no look before.
  static bool is_here();
  /// In the other process: what a good answer says, 64 KiB at most (words beyond are lost).
  static void say(std::string words);

 private:
  Looker(pid_t process, int socket);

  pid_t owner_;
  pid_t process_;
  int socket_;
};

}  // namespace kvscope

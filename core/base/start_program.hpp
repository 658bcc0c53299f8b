// Another program, started with the standard streams that it is given.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/base/descriptor.hpp"
#include "core/base/error.hpp"

namespace kvscope {

struct Pipe {
  Descriptor reading;
  Descriptor writing;
  /// Throws IoError.
  Pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0)
      throw IoError(fmt::format("no pipe to a program can be made: {}", std::strerror(errno)));
    reading = Descriptor(ends[0]);
    writing = Descriptor(ends[1]);
  }
};

struct ProgramStart {
  std::vector<std::string> words;  // words[0] is looked for in PATH if it has no slash
  std::filesystem::path folder{};  // that it runs in; empty: this one
  int in = -1;                     // what becomes its standard input; -1: this program's
  int out = -1;
  int err = -1;
};

/// The process that was started. Signals that this program handles or ignores have their usual
/// meaning there. Throws IoError if it cannot be started.
inline pid_t start_program(ProgramStart start) {
  std::vector<char*> argv;
  for (std::string& word : start.words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  const std::array<int, 3> streams = {start.in, start.out, start.err};
  for (int stream = 0; stream < 3; ++stream) {
    if (streams[stream] >= 0) posix_spawn_file_actions_adddup2(&actions, streams[stream], stream);
  }
  if (!start.folder.empty()) posix_spawn_file_actions_addchdir_np(&actions, start.folder.c_str());
  sigset_t usual;
  sigemptyset(&usual);
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE}) sigaddset(&usual, signal);
  posix_spawnattr_setsigdefault(&attributes, &usual);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  pid_t child = 0;
  const int problem = posix_spawnp(&child, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (problem != 0) {
    throw IoError(fmt::format("{} cannot be started{}: {}", start.words[0],
                              start.folder.empty() ? std::string() : " in " + start.folder.string(),
                              std::strerror(problem)));
  }
  return child;
}

/// Waits for the end of a program: 0 to 255 is its exit code, 256 + N that signal N ended it.
inline int wait_for_program(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? 256 + WTERMSIG(status) : WEXITSTATUS(status);
}

/// "ended with code 3", "was ended by signal 9".
inline std::string end_text(int ended) {
  return ended >= 256 ? fmt::format("was ended by signal {}", ended - 256)
                      : fmt::format("ended with code {}", ended);
}

}  // namespace kvscope

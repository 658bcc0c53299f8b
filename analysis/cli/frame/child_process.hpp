// Processes that this program starts and lets run: nothing is said to them, and only what they
// write to standard error is heard; ended with their owner.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "core/base/start_program.hpp"

namespace kvscope::cli {

/// A running program. The destructor kills it if it still runs.
class ChildProcess {
 public:
  /// argv[0] is looked up in PATH. Throws IoError if it cannot be started.
  explicit ChildProcess(const std::vector<std::string>& argv);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  int err() const { return err_.get(); }
  void send(int signal) const;
  int wait();  // as wait_for_program

 private:
  pid_t pid_ = -1;
  Descriptor err_;
};

/// The sentence of a kvscope among what was written to standard error, without "kvscope: "; else
/// the last line.
std::string sentence_of(const std::string& written);

/// Appends what can be read now. False at the end of the stream.
bool read_some(int fd, std::string& text);

/// The file of the program that runs here, or in Python of one that runs the same commands.
std::string this_program();

}  // namespace kvscope::cli

// Processes that this program starts: with pipes to their standard streams, ended with their owner.
#pragma once

#include <sys/types.h>

#include <stop_token>
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

  int out() const { return out_.get(); }
  int err() const { return err_.get(); }
  /// A line to its standard input; false if it reads no more.
  bool write_line(const std::string& line);
  void close_input();
  void send(int signal) const;
  int wait();  // as wait_for_program

 private:
  pid_t pid_ = -1;
  Descriptor in_;
  Descriptor out_;
  Descriptor err_;
};

/// The sentence of a kvscope among what was written to standard error, without "kvscope: "; else
/// the last line.
std::string sentence_of(const std::string& written);

/// Appends what can be read now. False at the end of the stream.
bool read_some(int fd, std::string& text);

struct ChildOutcome {
  int ended = 0;  // as wait_for_program
  std::string out;
  std::string err;
};

/// A program to its end, with what it said. On a stop it gets SIGTERM, and after 20 s SIGKILL.
ChildOutcome run_child(const std::vector<std::string>& argv, const std::stop_token& stop);

/// The file of the program that runs here, or in Python of one that runs the same commands.
std::string this_program();

}  // namespace kvscope::cli

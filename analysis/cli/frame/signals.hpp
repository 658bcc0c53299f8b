// Ctrl-C and SIGTERM ask running work to stop at the next safe point; a second one ends the program
// at once.
#pragma once

#include <csignal>
#include <stop_token>
#include <thread>

namespace kvscope::cli {

/// From now on SIGINT, SIGTERM and SIGHUP remove the files that are on their way to their names
/// (core/base/new_file.hpp) before they end the program. A signal that is ignored stays so.
void clean_up_on_signals();

/// While one of these lives, SIGINT and SIGTERM request a stop instead of killing. One at a time.
/// Under a host (host.hpp) signals are the host's, and the stop is its own.
class StopOnSignal {
 public:
  StopOnSignal();
  ~StopOnSignal();
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;

  std::stop_token token() const { return token_; }

  /// 130 or 143 once a signal came, 0 before; stays after destruction of the object.
  static int exit_code();

 private:
  std::stop_source source_;
  std::stop_token token_;
  /// Turns the handler's byte into request_stop(), which a handler must not call.
  std::jthread watcher_;
  struct sigaction before_[2]{};  // of SIGINT and SIGTERM
};

}  // namespace kvscope::cli

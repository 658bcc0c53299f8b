// Another program that has the commands as a library (Python): it gets what they would say, follows
// their progress and asks them to stop. Without one the commands speak to the standard streams and
// heed signals.
#pragma once

#include <exception>
#include <stop_token>
#include <string_view>

#include "core/base/progress.hpp"

namespace kvscope::cli {

class Host {
 public:
  virtual ~Host() = default;
  /// What standard output would have got, as it is. May be called from the thread of
  /// the command only.
  virtual void print(std::string_view text) = 0;
  /// A line for people.
  virtual void note(std::string_view line) = 0;
  /// Called as ProgressFn is.
  virtual void report(const Progress& progress) = 0;
  virtual std::stop_token stop_token() const = 0;
  /// The command ended by this error, of which note() gets the sentence.
  virtual void ended_by(const std::exception& error) { (void)error; }
};

/// The host of the running command; null in the program.
Host* host();

/// While one of these lives its host is host(), afterwards the one before it. In one thread of the
/// process.
class HostScope {
 public:
  explicit HostScope(Host& host);
  ~HostScope();
  HostScope(const HostScope&) = delete;
  HostScope& operator=(const HostScope&) = delete;

 private:
  Host* before_;
};

}  // namespace kvscope::cli

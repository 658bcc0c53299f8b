// The writer of one trace file, whose end is two steps: first the file is whole, then it has its
// name. The parts of a set take the first step all, before any of them takes the second.
#pragma once

#include <filesystem>
#include <memory>

#include "core/trace/receiver.hpp"
#include "traces/writer.hpp"

namespace kvscope {

/// What WriterOptions::kept_units adds to recovery hints.
inline constexpr const char* kGoesOn = "the same command goes on with them, ";

class PartWriter : public TraceReceiver {
 public:
  /// Until all calls so far are done; throws what one of them threw.
  virtual void settle() {}
  /// Units that survive a kill.
  virtual std::size_t n_committed() const = 0;
  /// finish() but for the name: a file that has it stays as it is.
  virtual void complete(TraceStatus status) = 0;
  /// Where the file lies between complete() and publish().
  virtual std::filesystem::path whole_file() const = 0;
  /// Gives it its name; without a committed unit there is no file.
  virtual void publish() = 0;
  void finish(TraceStatus status) final {
    complete(status);
    publish();
  }
};

/// As create_trace.
std::unique_ptr<PartWriter> create_part(const std::filesystem::path& out,
                                        const WriterOptions& options);

}  // namespace kvscope

// What the program's exit codes mean, which scripts rely on, and the error of wrong usage.
#pragma once

#include "core/base/error.hpp"

namespace kvscope {

enum ExitCode : int {
  kOk = 0,
  kInternalError = 1,  // our fault, or out of memory
  kUsageError = 2,     // unknown option, bad value, contradiction
  kInputError = 3,     // a file cannot be read, written or verified
  kPartlyFailed = 4,   // finished, but some units of work failed
  kCheckFailed = 5,    // a check that was asked for failed: a bound was violated
  kInterrupted = 130,  // SIGINT; SIGTERM is 143
};

/// The command line itself is wrong. Ends with exit code 2 and a pointer to the command's help.
class UsageError : public SpokenError {
 public:
  using SpokenError::SpokenError;
};

/// The work is finished but for items that failed, which were named. Ends with exit code 4.
class PartlyFailed : public SpokenError {
 public:
  using SpokenError::SpokenError;
};

/// What `parse` returns; a value that the library refuses is an error of the command line.
template <class Parse>
auto as_usage(Parse&& parse) {
  try {
    return parse();
  } catch (const ConfigError& error) {
    throw UsageError(error.what());
  }
}

}  // namespace kvscope

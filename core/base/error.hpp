// The kinds of error that reach the user; each message says what, where, expected and found.
#pragma once

#ifndef __CUDACC__  // nvcc cannot read it, and kernels throw nothing
#include <fmt/core.h>
#endif

#include <stdexcept>
#include <string>
#include <utility>

namespace kvscope {

/// An exception that says its sentence, or one that is written as fmt writes it:
/// ConfigError("{}: expected a number, found {}", name, text).
class SpokenError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
#ifndef __CUDACC__
  template <class First, class... Rest>
  explicit SpokenError(fmt::format_string<First, Rest...> text, First&& first, Rest&&... rest)
      : std::runtime_error(
            fmt::format(text, std::forward<First>(first), std::forward<Rest>(rest)...)) {}
#endif
};

/// Base of every error kvscope throws on purpose; catch this at the outermost level only.
class Error : public SpokenError {
 public:
  using SpokenError::SpokenError;
};

/// The operating system refused: a file is missing, unreadable, locked, or the disk is full.
class IoError : public Error {
 public:
  using Error::Error;
};

/// A write was refused, for which no input is to blame: the disk is full, a quota, a device. The
/// work ends, and goes on when there is room.
class WriteRefused : public IoError {
 public:
  using IoError::IoError;
};

/// A file that is expected is not there: more often an answer than a failing system.
class MissingFile : public IoError {
 public:
  using IoError::IoError;
};

/// The bytes of a file do not mean what its format says they should.
class FormatError : public Error {
 public:
  using Error::Error;
};

/// An option or configuration is unknown, out of range or contradicts another one.
class ConfigError : public Error {
 public:
  using Error::Error;
};

/// A tensor has another shape than the operation needs.
class ShapeError : public Error {
 public:
  using Error::Error;
};

/// The user (Ctrl-C, SIGTERM, a cancel button) asked to stop; what was finished is kept.
class Interrupted : public Error {
 public:
  using Error::Error;
};

}  // namespace kvscope

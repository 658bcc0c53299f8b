// What goes wrong in Python code that the libraries call, kept until Python can be told.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>

#include "core/base/error.hpp"

namespace kvscope::python {

/// While one lives, the thread runs Python code that the libraries called.
struct CalledBack {
  CalledBack() { ++depth; }
  ~CalledBack() { --depth; }
  CalledBack(const CalledBack&) = delete;
  CalledBack& operator=(const CalledBack&) = delete;
  static inline thread_local int depth = 0;
};

/// Keeps the exception of a Python selector (the first one since the last take), since a C++
/// library stands between it and the caller. With the GIL.
void keep_failure(nanobind::python_error error);

/// What was kept, if anything; nothing is kept afterwards. With the GIL.
std::optional<nanobind::python_error> take_failure();

/// Calls `work`. If it throws because of a Python selector, throws the Python exception itself.
/// With the GIL.
template <class Work>
auto with_python_failures(Work&& work) {
  take_failure();
  try {
    return work();
  } catch (const Error&) {
    if (auto failure = take_failure()) throw std::move(*failure);
    throw;
  }
}

}  // namespace kvscope::python

// How long work reports how far it is: a value handed to a callback, never a print.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace kvscope {

/// One progress report. `done` runs from 0 to `total` in `unit`s; `total` 0 means unknown.
struct Progress {
  std::string stage;  // "prefill", "decode", "verify", ...
  std::int64_t done = 0;
  std::int64_t total = 0;
  std::string unit;  // "tokens", "layers", "rows", ...
};

/// Called from the thread that runs the work, at most some hundred times; may be empty.
using ProgressFn = std::function<void(const Progress&)>;

}  // namespace kvscope

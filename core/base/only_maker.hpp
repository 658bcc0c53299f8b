// One process of this machine at a time makes an output.
#pragma once

#include <filesystem>

#include "core/base/descriptor.hpp"

namespace kvscope {

/// Held until it is destroyed or the process ends, however that happens; leaves no file. By an
/// abstract socket's name (unix(7)), which the kernel gives to one process of a network namespace.
class OnlyMaker {
 public:
  /// Throws IoError where another process makes this output. Where there are no such sockets
  /// nothing is held.
  explicit OnlyMaker(const std::filesystem::path& output);

 private:
  Descriptor socket_;
};

}  // namespace kvscope

// Where this tree lies and what was built from it. One source knows: paths of a machine on every
// compiler's command line would keep a compiler cache from knowing the same source in another
// folder.
#pragma once

#include <filesystem>
#include <optional>

namespace kvscope::testing {

/// The root of the source tree.
std::filesystem::path source_dir();

/// The program kvscope of this build.
std::filesystem::path kvscope_program();

/// A library to preload that lets the disk fail (tests/support/failing_disk.c).
std::filesystem::path failing_disk();

/// A stand-in for a driver that is too old for the CUDA kernels; nothing where those are not built.
std::optional<std::filesystem::path> old_driver();

}  // namespace kvscope::testing

// How much memory this process may still take.
#pragma once

#include <cstddef>
#include <optional>

namespace kvscope {

/// Bytes that the system can hand out without swapping, and that the process's control group (a
/// batch job's limit, a container's) leaves; empty where the system does not tell.
std::optional<std::size_t> available_memory();

}  // namespace kvscope

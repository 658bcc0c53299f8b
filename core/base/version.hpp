// Which kvscope this is: stamped into every file it writes.
#pragma once

#include <string>
#include <string_view>

namespace kvscope {

/// "0.1.0".
std::string_view version();

/// The first 12 digits of the commit that was configured, or "unknown" outside a git checkout.
std::string_view commit();

/// The compiler that built the library: "GNU 12.2.0".
std::string_view compiler();

/// How files name their writer: "kvscope 0.1.0 (commit)".
std::string writer_name();

}  // namespace kvscope

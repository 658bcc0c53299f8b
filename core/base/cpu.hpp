// What this machine's processor is and which vector code was chosen for it.
#pragma once

#include <string>
#include <vector>

namespace kvscope {

/// The processor's name as the system gives it ("unknown" where it does not).
std::string cpu_name();

/// Vector targets that the kernels were compiled for and this processor runs, best first: "AVX3",
/// "AVX2", ...
std::vector<std::string> vector_targets();

}  // namespace kvscope

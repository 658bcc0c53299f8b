// Which sanitizer a test was built with, for what a sanitizer forbids or makes meaningless (limits
// of memory, preloaded libraries, forks); each use says which.
#pragma once

namespace kvscope::test {

#ifdef __SANITIZE_ADDRESS__
constexpr bool kAddressSanitizer = true;
#else
constexpr bool kAddressSanitizer = false;
#endif
#ifdef __SANITIZE_THREAD__
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif
constexpr bool kSanitizer = kAddressSanitizer || kThreadSanitizer;

}  // namespace kvscope::test

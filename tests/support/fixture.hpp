// Files that several test cases read and none changes: recordings and results, made once.
//
// CTest makes an area's files once, by its set-up entry, into a folder of the build
// (tests/catch_tests.cmake); cases that depend on it are not run where that fails. A test program
// that is started by hand makes what it needs, once per process.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

namespace kvscope::testing {

/// The file of that name; `make` writes it, or throws, where it has to be made. Throws
/// std::runtime_error where the set-up entry should have made it and did not.
std::filesystem::path fixture_file(const std::string& name,
                                   const std::function<void(const std::filesystem::path&)>& make);

}  // namespace kvscope::testing

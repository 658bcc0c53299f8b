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

/// Matches texts that have all of some parts.
class HasParts final : public Catch::Matchers::MatcherBase<std::string> {
 public:
  explicit HasParts(std::vector<std::string> parts) : parts_(std::move(parts)) {}
  bool match(const std::string& text) const override {
    return std::ranges::all_of(
        parts_, [&](const std::string& part) { return text.find(part) != std::string::npos; });
  }
  std::string describe() const override {
    std::string text = "has";
    for (const std::string& part : parts_) text += " " + Catch::Detail::stringify(part);
    return text;
  }

 private:
  std::vector<std::string> parts_;
};

inline HasParts has(std::vector<std::string> parts) {
  return HasParts(std::move(parts));
}
inline HasParts has(std::string part) {
  return HasParts({std::move(part)});
}

}  // namespace kvscope

/// The text has all of these parts.
#define CHECK_HAS(text, ...) CHECK_THAT(text, ::kvscope::has(std::vector<std::string>{__VA_ARGS__}))
/// The expression throws an error, of this type, whose message has all of these parts.
#define CHECK_SAYS(expression, ...) \
  CHECK_THROWS_WITH(expression, ::kvscope::has(std::vector<std::string>{__VA_ARGS__}))
#define CHECK_SAYS_AS(Type, expression, ...) \
  CHECK_THROWS_MATCHES(expression, Type,     \
                       MessageMatches(::kvscope::has(std::vector<std::string>{__VA_ARGS__})))

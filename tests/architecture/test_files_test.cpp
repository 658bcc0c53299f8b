// What lets CTest run a file's cases as one entry, and several files be compiled as one.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "tests/architecture/source_tree.hpp"

namespace kvscope::test::test_files_test {

/// "core" of tests/core/model/weights_test.cpp; empty for what no test program is made of.
std::string area_of(const std::string& path) {
  static const std::set<std::string> others = {"bench", "fuzz", "golden", "install", "support"};
  if (!path.starts_with("tests/") || !path.ends_with(".cpp")) return "";
  const std::string area = path.substr(6, path.find('/', 6) - 6);
  return others.contains(area) ? "" : area;
}

bool has_cases(const SourceFile& file) {
  return std::any_of(file.lines.begin(), file.lines.end(), [](const std::string& line) {
    return line.starts_with("TEST_CASE") || line.starts_with("TEMPLATE_TEST_CASE");
  });
}

TEST_CASE("the cases of a file stand in a namespace of its name, below one of ours") {
  std::size_t n_files = 0;
  for (const auto& file : source_files()) {
    if (area_of(file.path).empty() || !has_cases(file)) continue;
    ++n_files;
    std::string name = std::filesystem::path(file.path).stem().string();
    if (!name.ends_with("_test")) name += "_test";
    const auto opens = [&](const std::string& line) {
      return line.starts_with("namespace kvscope") && line.ends_with("::" + name + " {");
    };
    INFO(file.path << ": expected a line like: namespace kvscope::test::" << name << " {");
    CHECK(std::any_of(file.lines.begin(), file.lines.end(), opens));
  }
  CHECK(n_files > 100);
}

TEST_CASE("no two files of an area have one name, by which CTest selects their cases") {
  std::map<std::string, std::string> known;
  for (const auto& file : source_files()) {
    const std::string area = area_of(file.path);
    if (area.empty() || !has_cases(file)) continue;
    const std::string key = area + "/" + std::filesystem::path(file.path).stem().string();
    INFO(file.path << " and " << known[key]);
    CHECK(known[key].empty());
    known[key] = file.path;
  }
}

}  // namespace kvscope::test::test_files_test

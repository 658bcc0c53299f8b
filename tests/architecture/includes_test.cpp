// Who may include whom: the table of ARCHITECTURE.md, checked against every #include of the tree.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <regex>
#include <set>

#include "tests/architecture/source_tree.hpp"

namespace kvscope::test::includes_test {

using Parts = std::set<std::string>;

const std::map<std::string, Parts> kMayInclude = {
    {"core", {"core"}},
    {"core/cuda", {"core/cuda", "core"}},
    {"traces", {"traces", "core"}},
    {"analysis", {"analysis", "core"}},
    {"notebooks_export", {"notebooks_export", "core", "traces", "analysis"}},
    {"analysis/options", {"analysis/options", "core"}},
    {"analysis/cli",
     {"analysis/cli", "analysis/options", "core", "core/cuda", "traces", "analysis",
      "notebooks_export"}},
    {"traces/python/native",
     {"traces/python/native", "core", "traces", "analysis", "analysis/cli", "notebooks_export"}},
    {"gui/model",
     {"gui/model", "core", "traces", "analysis", "analysis/options", "notebooks_export"}},
    {"gui",
     {"gui", "gui/model", "analysis/options", "core", "traces", "analysis", "notebooks_export"}},
    {"tests",
     {"tests", "core", "core/cuda", "traces", "analysis", "analysis/cli", "analysis/options",
      "notebooks_export", "gui", "gui/model"}},
};

// Libraries that only some parts may know, by how their headers begin.
const std::map<std::string, Parts> kLibraryUsers = {
    {"Eigen/", {"core", "analysis", "tests"}},
    {"toml++/", {"analysis"}},
    {"hdf5",
     {"traces", "analysis/cli", "tests"}},  // the command line asks for the library's version only
    {"H5", {"traces", "tests"}},
    {"hwy/", {"core", "tests"}},
    {"oniguruma", {"core"}},
    {"utf8proc", {"core"}},
    {"xxh", {"core", "traces", "tests"}},
    {"boost/math/", {"analysis"}},
    {"boost/program_options", {"analysis/options"}},
    {"catch2/", {"tests"}},
    {"imgui", {"gui", "tests"}},
    {"GLFW/", {"gui", "tests"}},
    {"GL/", {"gui", "tests"}},
    {"EGL/", {"gui", "tests"}},
    {"cairo", {"notebooks_export"}},
    {"cuda", {"core/cuda"}},
    {"cooperative_groups", {"core/cuda"}},
    {"nanobind/", {"traces/python/native"}},
};

std::optional<std::string> included_name(const std::string& line) {
  static const std::regex pattern(R"re(^\s*#\s*include\s*[<"]([^>"]+)[>"])re");
  std::smatch match;
  if (!std::regex_search(line, match, pattern)) return std::nullopt;
  return match[1].str();
}

TEST_CASE("the tree is read: known files are there") {
  std::set<std::string> paths;
  for (const auto& file : source_files()) paths.insert(file.path);
  CHECK(paths.contains("core/base/error.hpp"));
  CHECK(paths.contains("tests/architecture/includes_test.cpp"));
  CHECK(paths.size() > 20);
}

TEST_CASE("project headers are included only along the arrows of ARCHITECTURE.md") {
  for (const auto& file : source_files()) {
    const std::string part = part_of(file.path);
    REQUIRE(kMayInclude.contains(part));
    for (const auto& line : file.lines) {
      const auto name = included_name(line);
      if (!name) continue;
      const std::string target = part_of(*name);
      if (!kMayInclude.contains(target)) continue;  // not one of ours
      INFO(file.path << " includes " << *name);
      CHECK(kMayInclude.at(part).contains(target));
    }
  }
}

/// Folders below `root`, each with those that it may include besides itself.
void check_order(const std::string& root, const std::map<std::string, Parts>& may_include) {
  const std::regex folder_pattern("^" + root + "/([a-z]+)/");
  for (const auto& file : source_files()) {
    std::smatch from;
    if (!std::regex_search(file.path, from, folder_pattern)) continue;
    const auto own = may_include.find(from[1].str());
    if (own == may_include.end()) continue;
    for (const auto& line : file.lines) {
      const auto name = included_name(line);
      std::smatch to;
      if (!name || !std::regex_search(*name, to, folder_pattern) || to[1] == from[1]) continue;
      INFO(file.path << " includes " << *name);
      CHECK(own->second.contains(to[1].str()));
    }
  }
}

TEST_CASE("the folders of core include each other in one order, without a circle") {
  const std::map<std::string, Parts> may_include = {
      {"base", {}},
      {"tensor", {"base"}},
      {"attention", {"base", "tensor"}},
      {"model", {"base", "tensor", "attention"}},
      {"trace", {"base", "tensor", "model"}},
      {"selectors", {"base", "tensor", "attention", "trace"}},
      {"sim", {"base", "tensor", "attention", "model", "trace", "selectors"}},
      {"cuda", {"base", "tensor", "attention", "model"}},
  };
  for (const auto& file : source_files()) {
    static const std::regex folder_pattern("^core/([a-z]+)/");
    std::smatch from;
    if (std::regex_search(file.path, from, folder_pattern))
      CHECK(may_include.contains(from[1].str()));
  }
  check_order("core", may_include);
}

TEST_CASE("what analyses share knows none of them") {
  check_order("analysis", {{"base", {}},
                           {"runs", {"base"}},
                           {"plot", {"base"}},
                           {"cost", {"base", "runs"}},
                           {"sweep", {"base", "runs", "cost"}},
                           {"kinds", {"base", "sweep", "simulate"}},
                           {"fit", {"base"}},
                           {"study", {"base", "runs"}}});
}

TEST_CASE("external libraries are included only where ARCHITECTURE.md lists them") {
  for (const auto& file : source_files()) {
    for (const auto& line : file.lines) {
      const auto name = included_name(line);
      if (!name) continue;
      for (const auto& [prefix, users] : kLibraryUsers) {
        if (!name->starts_with(prefix)) continue;
        INFO(file.path << " includes " << *name);
        CHECK(users.contains(part_of(file.path)));
      }
    }
  }
}

TEST_CASE("Eigen stays out of headers, so that translation units cannot disagree about it") {
  for (const auto& file : source_files()) {
    if (!file.path.ends_with(".hpp")) continue;
    for (const auto& line : file.lines) {
      const auto name = included_name(line);
      INFO(file.path << ": " << line);
      CHECK_FALSE((name && name->starts_with("Eigen/")));
    }
  }
}

TEST_CASE("a source includes its own header first, which proves that it can stand alone") {
  std::set<std::string> headers;
  for (const auto& file : source_files()) headers.insert(file.path);
  for (const auto& file : source_files()) {
    if (!file.path.ends_with(".cpp")) continue;
    const std::string own = file.path.substr(0, file.path.size() - 3) + "hpp";
    if (!headers.contains(own)) continue;
    const auto first = std::find_if(file.lines.begin(), file.lines.end(), [](const auto& line) {
      return included_name(line).has_value();
    });
    INFO(file.path << " does not include " << own << " first");
    REQUIRE(first != file.lines.end());
    CHECK((*included_name(*first) == own || "tests/" + *included_name(*first) == own));
  }
}

TEST_CASE("project headers are named from the root (tests also from theirs) and exist") {
  std::set<std::string> headers;
  for (const auto& file : source_files()) headers.insert(file.path);
  static const std::regex quoted(R"re(^\s*#\s*include\s*"([^"]+)")re");
  for (const auto& file : source_files()) {
    for (const auto& line : file.lines) {
      std::smatch match;
      if (!std::regex_search(line, match, quoted)) continue;
      INFO(file.path << " includes \"" << match[1].str() << "\"");
      const std::string name = match[1].str();
      CHECK((headers.contains(name) || headers.contains("tests/" + name) ||
             name.starts_with("hwy/")));
    }
  }
}

}  // namespace kvscope::test::includes_test

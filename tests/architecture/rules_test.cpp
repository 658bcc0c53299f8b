// Rules of the code base that can be read off the text: silent libraries, file lengths, first
// lines.
#include <fmt/format.h>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/architecture/source_tree.hpp"
#include "tests/support/places.hpp"

namespace kvscope::test::rules_test {

bool is_library(const std::string& path) {
  const std::string part = part_of(path);
  return part == "core" || part == "core/cuda" || part == "traces" || part == "analysis" ||
         part == "analysis/options" || part == "notebooks_export";
}

// Looked for before a regular expression is, which takes a hundred times as long.
bool has_any(std::string_view line, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) {
    return line.find(word) != std::string_view::npos;
  });
}

// What a library must not do: it reports by exceptions and callbacks, the programs speak.
bool prints_or_ends_the_process(const std::string& code) {
  static const std::regex pattern(
      R"re(\bstd::(cout|cerr|clog)\b|(^|[^\w:.>])((std::|::)?(printf|puts|putchar|perror|exit|_exit|_Exit|quick_exit|abort|terminate))\s*\(|\bfprintf\s*\(|\bfputs\s*\(|\bfmt::print\s*\(|\bstd::(printf|puts|exit|abort|terminate)\s*\(|\b(stdout|stderr)\b)re");
  return has_any(code, {"cout", "cerr", "clog", "print", "put", "perror", "exit", "_Exit", "abort",
                        "terminate", "stdout", "stderr"}) &&
         std::regex_search(code, pattern);
}

TEST_CASE("the scan finds what it looks for and nothing else") {
  for (const char* bad :
       {"std::cout << 1;", "  printf(\"x\");", "fprintf(out, f);", "exit(1);", "std::abort();",
        "fmt::print(\"a\");", "if (x) ::exit(2);", "write(stderr);", "std::terminate();"}) {
    INFO(bad);
    CHECK(prints_or_ends_the_process(bad));
  }
  for (const char* good :
       {"snprintf(buffer, n, f);", "on_exit(x);", "sink.abort();", "fmt::format(\"a\");",
        "bool aborted = false;", "vector.at(exit_index);"}) {
    INFO(good);
    CHECK_FALSE(prints_or_ends_the_process(good));
  }
  CHECK(code_only({"a(); // exit(1)", "/* abort(", "exit( */ b(\"puts(\");"}) ==
        std::vector<std::string>{"a(); ", "", " b( );"});
  CHECK(code_only({"x = R\"(abort(", "exit()\" + y;"}) ==
        std::vector<std::string>{"x = ", " + y;"});
}

TEST_CASE("libraries never print, exit or abort") {
  for (const auto& file : source_files()) {
    if (!is_library(file.path)) continue;
    const auto code = code_only(file.lines);
    for (std::size_t i = 0; i < code.size(); ++i) {
      if (prints_or_ends_the_process(code[i]))
        FAIL_CHECK(file.path << ":" << i + 1 << ": " << file.lines[i]);
    }
  }
}

TEST_CASE("JSON from outside goes through core/base/json_reader, which bounds its depth") {
  static const std::regex pattern(R"(\b(json|Json)::(parse|accept|sax_parse)\s*\()");
  for (const auto& file : source_files()) {
    if (file.path.starts_with("tests/")) continue;
    const auto code = code_only(file.lines);
    for (std::size_t i = 0; i < code.size(); ++i) {
      if (has_any(code[i], {"parse"}) && std::regex_search(code[i], pattern))
        FAIL_CHECK(file.path << ":" << i + 1 << ": " << file.lines[i]);
    }
  }
}

TEST_CASE("no file is longer than 600 lines, tables of generated data aside") {
  for (const auto& file : source_files()) {
    if (file.path.ends_with("_tables.cpp")) continue;
    INFO(file.path << " has " << file.lines.size() << " lines");
    CHECK(file.lines.size() <= 600);
  }
}

std::size_t code_points(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

// Lines (from 1) of more than 100 characters. Not counted is the text of raw strings: a style
// sheet, a script of another language or a pattern would change if it were cut.
std::vector<std::size_t> long_lines(const std::vector<std::string>& lines) {
  static const std::regex opening(R"re(\bR"([^(\s"]*)\()re");
  std::vector<std::size_t> found;
  std::string raw_end;  // of the raw string that a line begins in
  for (std::size_t i = 0; i < lines.size(); ++i) {
    bool has_raw = !raw_end.empty();
    std::string rest = lines[i];
    for (std::smatch match;;) {
      if (!raw_end.empty()) {
        const std::size_t end = rest.find(raw_end);
        if (end == std::string::npos) break;
        rest.erase(0, end + raw_end.size());
        raw_end.clear();
      }
      if (!std::regex_search(rest, match, opening)) break;
      has_raw = true;
      raw_end = ')' + match[1].str() + '"';
      rest = match.suffix();
    }
    if (!has_raw && code_points(lines[i]) > 100) found.push_back(i + 1);
  }
  return found;
}

TEST_CASE("no line is longer than 100 characters, the text of raw strings aside") {
  const std::string wide(101, 'x');
  CHECK(long_lines({wide, "// " + wide, "\"" + wide + "\"", std::string(100, 'x')}) ==
        std::vector<std::size_t>{1, 2, 3});
  std::string accents;
  for (int i = 0; i < 100; ++i) accents += "\u00e9";
  CHECK(long_lines({accents, accents + "."}) == std::vector<std::size_t>{2});
  CHECK(long_lines({"R\"(" + wide, wide + ")\"", wide,
                    "R\"a(" + wide + ")a\" + R\"b(" + wide + ")b\";", wide + ";"}) ==
        std::vector<std::size_t>{3, 5});
  for (const auto& file : source_files()) {
    for (const std::size_t line : long_lines(file.lines)) {
      INFO(file.path << ":" << line << ": " << file.lines[line - 1]);
      CHECK(code_points(file.lines[line - 1]) <= 100);
    }
  }
}

TEST_CASE("a header begins with a sentence that says what it is, then #pragma once") {
  for (const auto& file : source_files()) {
    if (!file.path.ends_with(".hpp") && !file.path.ends_with(".cuh")) continue;
    INFO(file.path);
    REQUIRE(!file.lines.empty());
    CHECK(file.lines.front().starts_with("// "));
    bool guarded = false;
    for (const auto& line : file.lines) guarded = guarded || line == "#pragma once";
    // Highway's -inl headers are read once per vector target and have a guard that toggles.
    CHECK((guarded || file.path.ends_with("-inl.hpp")));
  }
}

// The names of Catch2's cases in a source, as far as they stand in its text.
std::vector<std::string> case_names(const std::string& text) {
  static const std::regex pattern(
      R"re(\b(?:[A-Z_]*TEST_CASE(?:_[A-Z]+)*|SCENARIO)\s*\(\s*(?:\w+\s*,\s*)?"([^"]*))re");
  std::vector<std::string> names;
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it)
    names.push_back((*it)[1]);
  return names;
}

// A test program takes what begins with a dash for an option, and cannot run such a case alone.
TEST_CASE("no test's name begins with a dash") {
  CHECK(case_names(
            "TEST_CASE(\"-a\") TEMPLATE_TEST_CASE(\n  \"b\", int) TEST_CASE_METHOD(F, \"c\")") ==
        std::vector<std::string>{"-a", "b", "c"});
  std::size_t n_names = 0;
  for (const auto& file : source_files()) {
    if (!file.path.starts_with("tests/") || file.path.ends_with("rules_test.cpp")) continue;
    std::string text;
    for (const auto& line : file.lines) text += line + '\n';
    for (const auto& name : case_names(text)) {
      INFO(file.path << ": " << name);
      CHECK_FALSE(name.starts_with('-'));
      ++n_names;
    }
  }
  CHECK(n_names > 1000);
}

TEST_CASE("no unfinished work is left in the code") {
  static const std::regex pattern(R"(\b(TO)DO\b|\b(FIX)ME\b|\bX{3}\b)");
  for (const auto& file : source_files()) {
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      if (has_any(file.lines[i], {"TO"
                                  "DO",
                                  "FIX"
                                  "ME",
                                  "XX"
                                  "X"}) &&
          std::regex_search(file.lines[i], pattern))
        FAIL_CHECK(file.path << ":" << i + 1 << ": " << file.lines[i]);
    }
  }
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The kernels of a CUDA source that wait for no earlier kernel, though every launch may overlap.
std::vector<std::string> kernels_that_do_not_wait(const std::string& text) {
  static const std::regex name_pattern(R"((\w+)\()");
  std::vector<std::string> names;
  const std::string_view mark = "__global__ ";
  for (auto at = text.find(mark); at != std::string::npos; at = text.find(mark, at + 1)) {
    const std::string body = text.substr(at, text.find("\n}\n", at) - at);
    if (body.find("  take_turn();") != std::string::npos ||
        body.find("  wait_for_earlier_kernels();") != std::string::npos)
      continue;
    std::string first = body.substr(0, body.find('{'));
    if (const auto bounds = first.find("__launch_bounds__("); bounds != std::string::npos)
      first.erase(bounds, first.find(")", bounds) + 1 - bounds);
    std::smatch name;
    names.push_back(std::regex_search(first, name, name_pattern) ? name[1].str() : first);
  }
  return names;
}

TEST_CASE("every CUDA kernel waits for the earlier ones") {
  CHECK(kernels_that_do_not_wait("__global__ void a(int n) {\n  take_turn();\n}\n"
                                 "__global__ void __launch_bounds__(32) b(T x) {\n  x = 1;\n}\n"
                                 "void c() {\n  take_turn();\n}\n") ==
        std::vector<std::string>{"b"});
  int n_files = 0;
  for (const auto& file :
       std::filesystem::directory_iterator(testing::source_dir() / "core/cuda")) {
    if (file.path().extension() != ".cu") continue;
    ++n_files;
    INFO(file.path().filename());
    CHECK(kernels_that_do_not_wait(text_of(file.path())).empty());
  }
  CHECK(n_files > 10);
}

// Paths from the root, in backticks, that a page names. Left out: patterns with NAME, what builds
// write, and the files of FIRST_HOUR.md (tests/readme/first_hour.py looks for these).
std::vector<std::string> named_files(const std::string& text) {
  static const std::regex pattern(R"(`([a-z_]+/[A-Za-z0-9_./-]+)`)");
  std::vector<std::string> paths;
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) {
    const std::string path = (*it)[1];
    if (path.find("NAME") != std::string::npos || path.starts_with("build/") ||
        path.starts_with("dist/"))
      continue;
    if (!path.starts_with("figures/")) paths.push_back(path);
  }
  return paths;
}

// Targets of a page's links to files, relative to its folder: no addresses, no places in a page.
std::vector<std::string> linked_files(const std::string& text) {
  static const std::regex pattern(R"(\]\(([^)#: ]+)(#[^)]*)?\))");
  std::vector<std::string> paths;
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it)
    paths.push_back((*it)[1]);
  return paths;
}

TEST_CASE("the pages name and link only files that exist") {
  CHECK(named_files("`core/a.hpp` `core/NAME.hpp` `build/x` `figures/x.pdf` `a b/c`") ==
        std::vector<std::string>{"core/a.hpp"});
  CHECK(linked_files("[a](b/c.md#d) [e](https://f.org/g) [h](#i) ![j](k.png)") ==
        std::vector<std::string>{"b/c.md", "k.png"});
  const std::filesystem::path root = testing::source_dir();
  std::size_t n_named = 0, n_linked = 0;
  for (const char* page :
       {"README.md", "FIRST_HOUR.md", "ARCHITECTURE.md", "CONTRIBUTING.md",
        "analysis/cli/COMMANDS.md", "analysis/figures/README.md", "analysis/kinds/README.md",
        "core/model/README.md", "core/selectors/README.md", "gui/panels/README.md"}) {
    const std::string text = text_of(root / page);
    for (const auto& path : named_files(text)) {
      INFO(page << " names " << path);
      // "core/attention/row_kernels" may stand for a header and its source
      CHECK((std::filesystem::exists(root / path) ||
             std::filesystem::exists(root / (path + ".hpp"))));
      ++n_named;
    }
    for (const auto& path : linked_files(text)) {
      INFO(page << " links " << path);
      CHECK(std::filesystem::exists((root / page).parent_path() / path));
      ++n_linked;
    }
  }
  CHECK(n_named > 60);
  CHECK(n_linked > 15);
}

/// Lines of a page that show a command of ours and that a shell would not take as they stand: words
/// in brackets behind it, or another indentation than that of the block's first command.
std::vector<std::string> unpasteable(const std::string& page) {
  static const std::regex command(R"re(^( {4,})(\$ )?kvscope .*)re");
  static const std::regex in_brackets(R"re(.* {2,}\(.*)re");
  std::vector<std::string> lines;
  std::istringstream text(page);
  std::string indent;  // of the block's first command
  std::smatch found;
  for (std::string line; std::getline(text, line);) {
    if (line.find_first_not_of(' ') == std::string::npos) indent.clear();
    if (!has_any(line, {"kvscope "}) || !std::regex_match(line, found, command)) continue;
    if (indent.empty()) indent = found[1];
    if (found[1] != indent || std::regex_match(line, in_brackets)) lines.push_back(line);
  }
  return lines;
}

TEST_CASE("commands in the pages can be pasted") {
  CHECK(unpasteable("    kvscope a   (and b)\n        $ kvscope c\n    $ kvscope d   # and e\n")
            .size() == 2);
  namespace fs = std::filesystem;
  std::vector<fs::path> pages = {"README.md", "FIRST_HOUR.md", "ARCHITECTURE.md",
                                 "CONTRIBUTING.md"};
  const fs::path root = testing::source_dir();
  for (const char* folder : {"analysis", "core", "gui", "notebooks_export", "tests", "traces"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      if (entry.path().extension() == ".md") pages.push_back(fs::relative(entry.path(), root));
    }
  }
  CHECK(pages.size() > 15);
  for (const fs::path& page : pages) {
    for (const std::string& line : unpasteable(text_of(root / page))) {
      INFO(page.string() << ": " << line);
      CHECK(line.empty());
    }
  }
}

}  // namespace kvscope::test::rules_test

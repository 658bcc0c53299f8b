// The project's own source files as text, for tests about the code itself.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvscope::test {

/// One file of the tree.
struct SourceFile {
  std::string path;                // from the root, with '/': "core/base/error.hpp"
  std::vector<std::string> lines;  // without line ends
};

/// All .hpp and .cpp files below the source folders, sorted by path.
const std::vector<SourceFile>& source_files();

/// Which part of the project a path belongs to: "core", "traces", "analysis", "analysis/cli",
/// "analysis/options", "gui", "notebooks_export", "tests".
std::string part_of(std::string_view path);

/// The lines with comments, string and character literals blanked out: what the compiler would act
/// on.
std::vector<std::string> code_only(const std::vector<std::string>& lines);

}  // namespace kvscope::test

#include "tests/architecture/source_tree.hpp"

#include <algorithm>
#include <fstream>
#include <stdexcept>
#include <utility>

#include "tests/support/places.hpp"

namespace kvscope::test {

namespace {

constexpr std::string_view kFolders[] = {"core", "traces",           "analysis",
                                         "gui",  "notebooks_export", "tests"};

SourceFile read_source(const std::filesystem::path& root, const std::filesystem::path& file) {
  SourceFile source{std::filesystem::relative(file, root).generic_string(), {}};
  std::ifstream in(file);
  if (!in) throw std::runtime_error("cannot read " + file.string());
  for (std::string line; std::getline(in, line);) source.lines.push_back(line);
  return source;
}

}  // namespace

const std::vector<SourceFile>& source_files() {
  static const std::vector<SourceFile> files = [] {
    const std::filesystem::path root = testing::source_dir();
    std::vector<SourceFile> found;
    for (std::string_view folder : kFolders) {
      if (!std::filesystem::exists(root / folder)) continue;
      for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
        const auto extension = entry.path().extension();
        const bool is_source =
            extension == ".hpp" || extension == ".cpp" || extension == ".cu" || extension == ".cuh";
        if (entry.is_regular_file() && is_source) found.push_back(read_source(root, entry.path()));
      }
    }
    std::sort(found.begin(), found.end(),
              [](const auto& a, const auto& b) { return a.path < b.path; });
    return found;
  }();
  return files;
}

std::string part_of(std::string_view path) {
  if (path.starts_with("core/cuda/")) return "core/cuda";
  if (path.starts_with("analysis/cli/")) return "analysis/cli";
  if (path.starts_with("analysis/options/")) return "analysis/options";
  if (path.starts_with("traces/python/native/")) return "traces/python/native";
  if (path.starts_with("gui/model/")) return "gui/model";
  return std::string(path.substr(0, path.find('/')));
}

std::vector<std::string> code_only(const std::vector<std::string>& lines) {
  std::vector<std::string> out;
  bool in_block_comment = false;
  std::string raw_end;  // closing mark of the raw string that the line starts in, if any
  for (const std::string& line : lines) {
    std::string code;
    for (std::size_t i = 0; i < line.size();) {
      if (!raw_end.empty()) {
        const std::size_t end = line.find(raw_end, i);
        if (end == std::string::npos) break;
        i = end + raw_end.size();
        raw_end.clear();
      } else if (in_block_comment) {
        const std::size_t end = line.find("*/", i);
        if (end == std::string::npos) break;
        in_block_comment = false;
        i = end + 2;
      } else if (line.compare(i, 2, "//") == 0) {
        break;
      } else if (line.compare(i, 2, "/*") == 0) {
        in_block_comment = true;
        i += 2;
      } else if (line.compare(i, 2, "R\"") == 0) {
        const std::size_t open = line.find('(', i);
        if (open == std::string::npos) break;
        raw_end.assign(1, ')');
        raw_end += line.substr(i + 2, open - i - 2);
        raw_end += '"';
        i = open + 1;
      } else if (line[i] == '"' ||
                 (line[i] == '\'' &&
                  (i == 0 || !std::isalnum(static_cast<unsigned char>(line[i - 1]))))) {
        const char quote = line[i++];
        while (i < line.size() && line[i] != quote) i += line[i] == '\\' ? 2 : 1;
        ++i;
        code += ' ';
      } else {
        code += line[i++];
      }
    }
    out.push_back(std::move(code));
  }
  return out;
}

}  // namespace kvscope::test

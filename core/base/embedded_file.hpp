// Files that were built into the program (core/embed.cmake), which needs none of its own at run
// time.
#pragma once

#include <algorithm>
#include <span>
#include <string_view>

namespace kvscope {

struct EmbeddedFile {
  std::string_view name;
  std::string_view text;
};

/// The text of the file of that name, which must be among them.
inline std::string_view built_in_text(std::span<const EmbeddedFile> files, std::string_view name) {
  return std::ranges::find(files, name, &EmbeddedFile::name)->text;
}

}  // namespace kvscope

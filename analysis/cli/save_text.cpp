#include "analysis/cli/save_text.hpp"

#include <fmt/format.h>

#include <fstream>

#include "core/base/error.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

void save_text(const fs::path& file, std::string_view text, bool overwrite) {
  std::error_code error;
  if (fs::is_directory(file, error))
    throw IoError(fmt::format("{} is a folder, expected a file to write", file.string()));
  if (!overwrite && fs::exists(file, error))
    throw IoError(fmt::format("{} exists; --overwrite replaces it", file.string()));
  fs::path temporary = file;
  temporary += ".part";
  std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  out.close();
  if (!out) {
    fs::remove(temporary, error);
    throw IoError(
        fmt::format("cannot write {}: is there such a folder, may you write into it, is "
                    "the disk full?",
                    file.string()));
  }
  fs::rename(temporary, file);
}

}  // namespace kvscope::cli

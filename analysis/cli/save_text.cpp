#include "analysis/cli/save_text.hpp"

#include "core/base/error.hpp"
#include "core/base/new_file.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

void check_new_output(const fs::path& out, bool overwrite, std::string_view replace) {
  std::error_code error;
  if (fs::is_directory(out, error))
    throw IoError("{} is a folder, expected a file to write", out.string());
  if (!overwrite && fs::is_regular_file(out, error))
    throw IoError("{} exists; {} replaces it", out.string(), replace);
  kvscope::check_output(out, overwrite);
  remove_old_temporaries(out);
}

void save_text(const fs::path& file, std::string_view text, bool overwrite) {
  write_new_file(file, text, overwrite);
}

}  // namespace kvscope::cli

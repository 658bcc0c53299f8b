#include "analysis/cli/save_text.hpp"

#include <fmt/format.h>

#include "analysis/cli/exit_code.hpp"
#include "core/base/error.hpp"
#include "core/base/new_file.hpp"
#include "traces/set_files.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

void refuse_input(const fs::path& out, std::string_view option, std::span<const fs::path> inputs) {
  if (const auto input = input_behind(out, with_set_parts(inputs))) {
    throw UsageError(fmt::format("--{}: {} is the input {}; results go to another file", option,
                                 out.string(), input->string()));
  }
}

void check_new_output(const fs::path& out, std::string_view option,
                      std::span<const fs::path> inputs, bool overwrite, std::string_view replace) {
  refuse_input(out, option, inputs);
  std::error_code error;
  if (fs::is_directory(out, error))
    throw IoError(fmt::format("{} is a folder, expected a file to write", out.string()));
  if (!overwrite && fs::is_regular_file(out, error))
    throw IoError(fmt::format("{} exists; {} replaces it", out.string(), replace));
  kvscope::check_output(out, overwrite);
}

void save_text(const fs::path& file, std::string_view text, bool overwrite) {
  write_new_file(file, text, overwrite);
}

}  // namespace kvscope::cli

#include "analysis/cli/frame/save_text.hpp"

#include <nlohmann/json.hpp>

#include "analysis/options/exit_code.hpp"
#include "core/base/error.hpp"
#include "core/base/new_file.hpp"
#include "traces/result_file.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

void check_new_output(const fs::path& out, bool overwrite, std::string_view replace,
                      std::optional<FileKind> written) {
  std::error_code error;
  if (fs::is_directory(out, error))
    throw IoError("{} is a folder, expected a file to write", out.string());
  const FileKind kind = written.value_or(kind_of_name(out));
  refuse_other_kind(out, kind);  // before the advice to overwrite it
  if (!overwrite && fs::is_regular_file(out, error))
    throw IoError("{} exists; {} replaces it", out.string(), replace);
  kvscope::check_output(out, overwrite, kind);
  remove_old_temporaries(out);
}

void save_text(const fs::path& file, std::string_view text, bool overwrite) {
  write_new_file(file, text, overwrite);
}

void check_table_output(const fs::path& out, bool overwrite) {
  const std::string extension = out.extension().string();
  if (extension != ".csv" && extension != ".json" && extension != ".h5") {
    throw UsageError("--out: expected a file name that ends in .csv, .json or .h5, found {}",
                     out.string());
  }
  check_new_output(out, overwrite, "--overwrite");
}

void write_table_output(const TableForms& table, const fs::path& out, bool overwrite) {
  check_table_output(out, overwrite);
  if (out.extension() == ".h5") {
    table.h5(*create_result_file(out, overwrite));
  } else if (out.extension() == ".csv") {
    save_text(out, table.csv(), overwrite);
  } else {
    save_text(out,
              table.json().dump(1, ' ', /*ensure_ascii=*/false,
                                nlohmann::ordered_json::error_handler_t::replace) +
                  "\n",
              overwrite);
  }
}

}  // namespace kvscope::cli

#include "analysis/cli/frame/save_text.hpp"

#include <nlohmann/json.hpp>

#include "analysis/options/exit_code.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/new_file.hpp"
#include "traces/result_file.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

void check_new_output(const fs::path& out, bool overwrite, std::optional<FileKind> written) {
  std::error_code error;
  if (fs::is_directory(out, error))
    throw IoError("{} is a folder, expected a file to write", out.string());
  const FileKind named = kind_of_name(out);
  const FileKind kind = written.value_or(named);
  refuse_other_kind(out, kind);  // before the advice to overwrite it
  if (!overwrite && fs::is_regular_file(out, error))
    throw IoError("{} exists; --overwrite replaces it", out.string());
  kvscope::check_output(out, overwrite, kind);
  const bool is_h5 = kind == FileKind::trace && named == FileKind::result;
  if (named != kind && named != FileKind::text && !is_h5)
    throw UsageError("{}: the name is that of {}, and {} is written: expected another ending",
                     out.string(), words_of(named), words_of(kind));
  remove_old_temporaries(out);
}

void check_table_output(const fs::path& out, bool overwrite) {
  const std::string extension = out.extension().string();
  if (extension != ".csv" && extension != ".json" && extension != ".h5") {
    throw UsageError("--out: expected a file name that ends in .csv, .json or .h5, found {}",
                     out.string());
  }
  check_new_output(out, overwrite);
}

void write_table_output(const TableForms& table, const fs::path& out, bool overwrite) {
  check_table_output(out, overwrite);
  if (out.extension() == ".h5") {
    table.h5(*create_result_file(out, overwrite));
  } else if (out.extension() == ".csv") {
    write_new_file(out, table.csv(), overwrite);
  } else {
    write_new_file(out, json_text(table.json(), 1) + "\n", overwrite);
  }
}

}  // namespace kvscope::cli

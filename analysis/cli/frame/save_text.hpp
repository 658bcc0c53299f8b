// What every command that writes a file asks before the work, and the writing of text and tables.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "core/base/file_kind.hpp"
#include "core/base/new_file.hpp"
#include "core/trace/result_writer.hpp"

namespace kvscope::cli {

/// Refuses an output before anything is computed. Throws IoError if it exists (unless overwrite),
/// is a folder, a device, a pipe or a link to nothing, or if its folder is missing or may not be
/// written; ConfigError if it was read (core/base/read_files.hpp). Inputs that are opened later are
/// asked for then (refuse_read_file), and once more when the file gets its name. What is there is
/// replaced only if it is of the kind `written`, without which the name's ending tells
/// (core/base/file_kind.hpp). UsageError if the ending tells another kind than `written`.
void check_new_output(const std::filesystem::path& out, bool overwrite,
                      std::optional<FileKind> written = {});

/// For whatever writes a table: throws UsageError unless the name ends in .csv, .json or .h5, and
/// what check_new_output throws.
void check_table_output(const std::filesystem::path& out, bool overwrite);

/// A table in each of its forms, made when it is asked for.
struct TableForms {
  std::function<std::string()> csv;
  std::function<nlohmann::ordered_json()> json;
  std::function<void(ResultWriter&)> h5;
};

/// Writes the form that the name asks for; the file gets its name when it is whole.
void write_table_output(const TableForms& table, const std::filesystem::path& out, bool overwrite);

}  // namespace kvscope::cli

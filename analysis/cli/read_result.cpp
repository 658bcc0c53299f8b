#include "analysis/cli/read_result.hpp"

#include <fmt/format.h>

#include <fstream>

#include "analysis/cli/read_input.hpp"
#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "traces/result_file.hpp"

namespace kvscope::cli {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;
constexpr std::string_view kHdf5Signature = "\x89HDF\r\n\x1a\n";

bool is_hdf5(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::string first(kHdf5Signature.size(), '\0');
  in.read(first.data(), static_cast<std::streamsize>(first.size()));
  return in && first == kHdf5Signature;
}

/// One array of rows as doubles, whatever it is stored as.
std::vector<double> numbers_of(const ResultFile& file, const ResultArray& array) {
  const auto convert = [&]<class T>(T) {
    const std::vector<T> values = file.read<T>(array.name);
    return std::vector<double>(values.begin(), values.end());
  };
  switch (array.type) {
    case ResultType::f32:
      return convert(float{});
    case ResultType::f64:
      return convert(double{});
    case ResultType::i32:
      return convert(std::int32_t{});
    case ResultType::i64:
      return convert(std::int64_t{});
    case ResultType::u8:
      break;
  }
  return convert(std::uint8_t{});
}

std::vector<std::string> texts_of(const std::vector<double>& codes, const nlohmann::json& names,
                                  const std::string& where) {
  std::vector<std::string> texts;
  for (const double code : codes) {
    const bool fits = code >= 0 && code < static_cast<double>(names.size());
    if (!fits || !names[static_cast<std::size_t>(code)].is_string())
      throw FormatError(fmt::format("{}: {} is not the number of a category", where, code));
    texts.push_back(names[static_cast<std::size_t>(code)].get<std::string>());
  }
  return texts;
}

TidyTable rows_of_hdf5(const fs::path& path) {
  const ResultFile file = ResultFile::open(path);
  const nlohmann::json summary = file.summary();
  const nlohmann::json categories = summary.is_object() && summary.contains("categories")
                                        ? summary["categories"]
                                        : nlohmann::json::object();
  TidyTable table;
  for (const ResultArray& array : file.arrays()) {
    if (!array.name.starts_with("rows/") || array.shape.rank != 1) continue;
    const std::string name = array.name.substr(5);
    std::vector<double> numbers = numbers_of(file, array);
    if (categories.is_object() && categories.contains(name) && categories[name].is_array()) {
      table.add(name, texts_of(numbers, categories[name],
                               fmt::format("{}: {}", path.string(), array.name)));
    } else {
      table.add(name, std::move(numbers));
    }
  }
  if (!table.columns().empty()) return table;
  if (!summary.is_object() || !summary.contains("layers")) {
    throw FormatError(fmt::format("{}: a result of kind {} holds no rows to make a table of",
                                  path.string(), file.info().kind));
  }
  return tidy_table_from_json(summary, path.string());
}

}  // namespace

TidyTable read_result_rows(const fs::path& file) {
  if (is_hdf5(file)) return rows_of_hdf5(file);
  const std::string text = read_whole_file(file, kMaxTextBytes);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string::npos && (text[first] == '{' || text[first] == '[');
  return is_json ? tidy_table_from_json(parse_json(text, file.string()), file.string())
                 : tidy_table_from_csv(text, file.string());
}

TidyTable read_result_rows(const std::vector<fs::path>& files) {
  TidyTable all;
  for (const fs::path& file : files) {
    TidyTable table = read_result_rows(file);
    if (files.size() > 1 && !table.find("file"))
      table.add("file", std::vector<std::string>(table.n_rows(), file.filename().string()));
    all.append(table);
  }
  return all;
}

}  // namespace kvscope::cli

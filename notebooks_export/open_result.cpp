#include "notebooks_export/open_result.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "analysis/base/read_table.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/whole_file.hpp"
#include "core/trace/result.hpp"
#include "notebooks_export/simulation_json.hpp"
#include "traces/result_file.hpp"

namespace kvscope {

namespace {

namespace fs = std::filesystem;
constexpr std::size_t kMaxTextBytes = std::size_t{4} << 30;

class FileView final : public ResultView {
 public:
  FileView(ResultFile file, std::string name) : file_(std::move(file)), name_(std::move(name)) {}
  std::string name() const override { return name_; }
  const ResultInfo& info() const override { return file_.info(); }
  const Json& summary() const override { return file_.summary(); }
  const std::vector<ResultArray>& arrays() const override { return file_.arrays(); }

  std::vector<double> read(std::string_view array) const override {
    return with_type(require(array).type, [&]<class T>(T) {
      const std::vector<T> values = file_.read<T>(array);
      return std::vector<double>(values.begin(), values.end());
    });
  }

 private:
  ResultFile file_;
  std::string name_;
};

/// A result that owns what it shows.
class OwnedView final : public ResultView {
 public:
  OwnedView(std::unique_ptr<MemoryResult> result, std::string name)
      : result_(std::move(result)), view_(*result_, std::move(name)) {}
  std::string name() const override { return view_.name(); }
  const ResultInfo& info() const override { return view_.info(); }
  const Json& summary() const override { return view_.summary(); }
  const std::vector<ResultArray>& arrays() const override { return view_.arrays(); }
  std::vector<double> read(std::string_view array) const override { return view_.read(array); }

 private:
  std::unique_ptr<MemoryResult> result_;
  MemoryResultView view_;
};

std::unique_ptr<ResultView> view_of(const Table& table, ResultInfo info,
                                    const std::function<void(ResultWriter&)>& more = {}) {
  if (table.n_rows() == 0) throw FormatError("{}: the table has no rows", table.name());
  // Results in HDF5 have as many arrays at most; what follows looks for columns by their names.
  constexpr std::size_t kMostColumns = 10'000;
  if (table.columns().size() > kMostColumns) {
    throw FormatError("{}: a table of {} columns, expected at most {}", table.name(),
                      table.columns().size(), kMostColumns);
  }
  if (info.config_hash.empty() && table.has_text("config_hash"))
    info.config_hash = table.text("config_hash").at(0);
  auto result = std::make_unique<MemoryResult>();
  table_to_result(table, info, *result, more);
  return std::make_unique<OwnedView>(std::move(result), table.name());
}

/// What a report says about the whole run: its "config", or the numbers and words beside the rows.
Json config_of(const nlohmann::json& report) {
  if (report.contains("config") && report["config"].is_object()) return Json(report["config"]);
  Json config = Json::object();
  auto& fields = config.get_ref<Json::object_t&>();  // [] would look for each key among all others
  for (const auto& [key, value] : report.items()) {
    if (!value.is_structured()) fields.emplace_back(key, Json(value));
  }
  return config;
}

std::unique_ptr<ResultView> open_json(const std::string& text, const std::string& where) {
  const nlohmann::json json = parse_json(text, where);
  ResultInfo info;
  info.kind = "table";
  if (json.is_object()) {
    const JsonObject report(json, where);
    info.kind = report.string_if("kind").value_or("table");
    info.config_hash = report.string_if("config_hash").value_or("");
    info.command_line = report.string_if("command_line").value_or("");
    // "simulate needle", as it once was.
    std::replace(info.kind.begin(), info.kind.end(), ' ', '-');
    info.config = config_of(json);
  }
  return view_of(table_from_json(json, where), info,
                 [&](ResultWriter& output) { write_simulation_arrays(json, where, output); });
}

/// True for a file that is HDF5, and for one that should be by its name.
bool is_hdf5(const fs::path& file) {
  constexpr std::string_view kSignature = "\x89HDF\r\n\x1a\n";
  if (file.extension() == ".h5" || file.extension() == ".hdf5") return true;
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return false;  // of a pipe, looking takes the first bytes
  std::array<char, kSignature.size()> first{};
  std::ifstream in(file, std::ios::binary);
  in.read(first.data(), first.size());
  return in && std::string_view(first.data(), first.size()) == kSignature;
}

}  // namespace

std::unique_ptr<ResultView> open_result(const fs::path& file) {
  const std::string name = file.string();
  std::error_code error;
  if (fs::is_directory(file, error)) throw IoError("{} is a folder, expected a file", name);
  if (file != "-" && !fs::exists(file, error)) throw IoError("cannot read {}: no such file", name);
  if (is_hdf5(file)) return std::make_unique<FileView>(ResultFile::open(file), name);
  const std::string text = read_whole_file(file, kMaxTextBytes);
  if (text.find('\0') != std::string::npos)
    throw FormatError("{}: expected a result in HDF5, CSV or JSON", name);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string::npos && (text[first] == '{' || text[first] == '[');
  if (is_json) return open_json(text, name);
  ResultInfo info;
  info.kind = "table";
  return view_of(table_from_csv(text, name), info);
}

Table read_rows(const fs::path& file) {
  return rows_of(*open_result(file));
}

Table read_rows(const std::vector<fs::path>& files) {
  if (files.size() == 1) return read_rows(files.front());
  Table all(fmt::format("{} results", files.size()));
  for (const fs::path& file : files) {
    Table table = read_rows(file);
    if (table.find("file") == nullptr) table.add_text("file", file.filename().string());
    all.append(table);
  }
  return all;
}

}  // namespace kvscope

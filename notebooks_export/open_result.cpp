#include "notebooks_export/open_result.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "analysis/base/read_table.hpp"
#include "analysis/simulate/row_units.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/nan.hpp"
#include "core/base/whole_file.hpp"
#include "core/trace/result.hpp"
#include "traces/result_file.hpp"

namespace kvscope {

namespace {

namespace fs = std::filesystem;
constexpr std::size_t kMaxTextBytes = std::size_t{4} << 30;

using PlainJson = nlohmann::json;

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw FormatError("{}: {}", where, what);
}

/// A list of numbers, null for NaN.
std::vector<double> numbers_of(const PlainJson& parent, const char* key, const std::string& where) {
  if (!parent.is_object() || !parent.contains(key) || !parent[key].is_array())
    refuse(where, fmt::format("expected a list of numbers \"{}\"", key));
  std::vector<double> numbers;
  for (const PlainJson& item : parent[key]) {
    if (!item.is_number() && !item.is_null())
      refuse(where, fmt::format("{}: expected numbers, found {}", key, describe(item)));
    numbers.push_back(item.is_null() ? kNan : item.get<double>());
  }
  return numbers;
}

void write_list(ResultWriter& output, const std::string& name, const std::vector<double>& values,
                const char* axis, const char* units) {
  output.put<double>(name, {std::ssize(values)}, {axis}, units, axis, values);
}

void write_grids(const PlainJson& grids, const std::string& where, ResultWriter& output) {
  std::vector<double> lengths;
  std::vector<double> depths;
  std::map<std::string, std::vector<double>> by_kind;
  for (const PlainJson& grid : grids) {
    const auto own_lengths = numbers_of(grid, "lengths", where);
    const auto own_depths = numbers_of(grid, "depths", where);
    const auto accuracy = numbers_of(grid, "accuracy", where);
    if (by_kind.empty()) {
      lengths = own_lengths;
      depths = own_depths;
    }
    if (own_lengths != lengths || own_depths != depths || lengths.empty() || depths.empty() ||
        accuracy.size() != lengths.size() * depths.size() || !grid.contains("kind") ||
        !grid["kind"].is_string()) {
      refuse(where, "a grid does not fit its lengths, its depths or the other grids");
    }
    auto& all = by_kind[grid["kind"].get<std::string>()];
    all.insert(all.end(), accuracy.begin(), accuracy.end());
  }
  if (by_kind.empty()) return;
  write_list(output, "grid/length", lengths, "length", "token");
  write_list(output, "grid/depth", depths, "depth", "1");
  const std::size_t n_cells = lengths.size() * depths.size();
  for (const auto& [kind, accuracy] : by_kind) {
    if (kind == "length" || kind == "depth" || kind == "pair")
      refuse(where, fmt::format("a grid is called {}, as an axis is", kind));
    output.put<double>(
        "grid/" + kind,
        {static_cast<Index>(accuracy.size() / n_cells), std::ssize(lengths), std::ssize(depths)},
        {"pair", "length", "depth"}, "1", "accuracy", accuracy);
  }
}

void write_curves(const PlainJson& curves, const std::string& where, ResultWriter& output) {
  if (!curves.is_object() || !curves.contains("log_perplexity") ||
      !curves["log_perplexity"].is_array() || !curves.contains("step_begin") ||
      !curves["step_begin"].is_number_integer()) {
    refuse(where, "expected curves with step_begin and log_perplexity");
  }
  std::vector<double> all;
  std::size_t n_steps = 0;
  const PlainJson& lists = curves["log_perplexity"];
  for (const PlainJson& list : lists) {
    const auto values = numbers_of(PlainJson{{"log_perplexity", list}}, "log_perplexity", where);
    if (!all.empty() && values.size() != n_steps) refuse(where, "curves of different lengths");
    n_steps = values.size();
    all.insert(all.end(), values.begin(), values.end());
  }
  if (all.empty()) return;
  std::vector<double> positions(n_steps);
  std::iota(positions.begin(), positions.end(), curves["step_begin"].get<double>());
  write_list(output, "curve/position", positions, "position", "token");
  output.put<double>("curve/log_perplexity", {std::ssize(lists), static_cast<Index>(n_steps)},
                     {"pair", "position"}, "nat", "mean loss up to this position", all);
}

/// "quest tokens=256": how a row's method and budget are called in outcomes.
std::string label_of(const PlainJson& row) {
  std::string label = row.value("selector", "");
  const auto budget = row.find("budget");
  if (budget != row.end() && budget->is_number())
    label += fmt::format(" {}={}", row.value("budget_kind", ""), budget->get<double>());
  return label;
}

/// Scores of the prompts of every row; none where they are not there.
std::vector<std::vector<double>> prompt_scores(const PlainJson& report) {
  std::vector<std::vector<double>> units;
  for (const PlainJson& row : report["rows"]) {
    auto& scores = units.emplace_back();
    for (const PlainJson& outcome : report["outcomes"]) {
      const auto agrees = [&](const char* key) {
        return !row.contains(key) || !outcome.contains(key) || row[key] == outcome[key];
      };
      if (!agrees("protocol") || !agrees("kind") || !agrees("length")) continue;
      const PlainJson of_pair =
          outcome.value("scores", PlainJson::object()).value(label_of(row), PlainJson::array());
      for (const PlainJson& score : of_pair)
        scores.push_back(score.is_number() ? score.get<double>() : kNan);
    }
  }
  return units;
}

/// Mean loss of each block of 64 positions, from the mean up to each position.
std::vector<std::vector<double>> block_losses(const PlainJson& curves, const std::string& where) {
  constexpr std::size_t kBlock = 64;
  std::vector<std::vector<double>> units;
  for (const PlainJson& list : curves["log_perplexity"]) {
    const auto means = numbers_of(PlainJson{{"log_perplexity", list}}, "log_perplexity", where);
    auto& losses = units.emplace_back();
    for (std::size_t end = kBlock; end <= means.size(); end += kBlock) {
      const std::size_t begin = end - kBlock;
      const double before = begin == 0 ? 0.0 : static_cast<double>(begin) * means[begin - 1];
      losses.push_back((static_cast<double>(end) * means[end - 1] - before) /
                       static_cast<double>(kBlock));
    }
  }
  return units;
}

/// What the rows are means of, for readers that compare them.
void write_units(const PlainJson& report, const std::string& where, ResultWriter& output) {
  if (!report.contains("rows") || !report["rows"].is_array()) return;
  std::vector<std::vector<double>> units;
  if (report.contains("outcomes") && report["outcomes"].is_array()) {
    try {
      units = prompt_scores(report);
    } catch (const PlainJson::exception& error) {
      refuse(where, fmt::format("outcomes that do not fit the rows: {}", error.what()));
    }
  } else if (report.contains("curves")) {
    units = block_losses(report["curves"], where);
  }
  if (units.size() == report["rows"].size()) write_row_units(output, units, "of each row's mean");
}

/// Declares and writes grid/KIND [pair, length, depth] with its axes from "grids", and
/// curve/log_perplexity [pair, position] from "curves"; nothing where the report has neither. What
/// the rows are means of (units/value) from "outcomes", else from the curves, in blocks of 64.
/// Throws FormatError, naming `where`, for lists that do not fit together.
void write_simulation_arrays(const PlainJson& report, const std::string& where,
                             ResultWriter& output) {
  if (!report.is_object()) return;
  if (report.contains("grids") && report["grids"].is_array())
    write_grids(report["grids"], where, output);
  if (report.contains("curves")) write_curves(report["curves"], where, output);
  write_units(report, where, output);
}

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
  auto result = std::make_unique<MemoryResult>(table.name());
  table_to_result(table, info, *result, more);
  return result;
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
bool is_hdf5(const fs::path& file, FileKind kind) {
  if (file.extension() == ".h5" || file.extension() == ".hdf5") return true;
  return kind == FileKind::trace || kind == FileKind::result || kind == FileKind::hdf5;
}

}  // namespace

std::vector<FileKind> kinds_of_results() {
  return {FileKind::result, FileKind::csv, FileKind::json, FileKind::own_json};
}

std::unique_ptr<ResultView> open_result(const fs::path& file) {
  const std::string name = file.string();
  std::error_code error;
  if (fs::is_directory(file, error)) throw IoError("{} is a folder, expected a file", name);
  if (file != "-" && !fs::exists(file, error)) throw IoError("cannot read {}: no such file", name);
  const FileKind kind = kind_of_file(file);
  if (is_hdf5(file, kind)) return std::make_unique<ResultFile>(ResultFile::open(file));
  std::vector<FileKind> readable = kinds_of_results();
  readable.insert(readable.end(), {FileKind::none, FileKind::empty, FileKind::text});  // pipes too
  if (std::ranges::find(readable, kind) == readable.end())
    throw FormatError("{} is {}, expected a result in HDF5, CSV or JSON", name, words_of(kind));
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

#include "analysis/figures/result_view.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"

namespace kvscope {

namespace {

constexpr std::string_view kRows = "rows/";

template <class T>
std::vector<double> as_doubles(std::span<const T> values) {
  return {values.begin(), values.end()};
}

}  // namespace

const ResultArray* ResultView::find(std::string_view array) const {
  const auto& all = arrays();
  const auto it =
      std::find_if(all.begin(), all.end(), [&](const ResultArray& a) { return a.name == array; });
  return it == all.end() ? nullptr : &*it;
}

const ResultArray& ResultView::require(std::string_view array) const {
  if (const ResultArray* found = find(array)) return *found;
  throw ConfigError(
      fmt::format("{}: this result of kind {} holds no array \"{}\"", name(), info().kind, array));
}

std::vector<double> ResultView::axis(std::string_view array, int axis) const {
  const ResultArray& spec = require(array);
  if (axis >= spec.shape.rank || spec.axes.size() != static_cast<std::size_t>(spec.shape.rank)) {
    throw FormatError(fmt::format("{}: {} has shape {} and {} named axes, expected more axes",
                                  name(), array, to_string(spec.shape), spec.axes.size()));
  }
  const std::string& axis_name = spec.axes[static_cast<std::size_t>(axis)];
  // "row" has its positions in "row_pos", "step" in "step_pos"
  for (const std::string& candidate : {axis_name, axis_name + "_pos", axis_name + "_begin"}) {
    const ResultArray* coordinates = find(candidate);
    if (coordinates != nullptr && coordinates->shape == Shape{spec.shape[axis]}) {
      return read(candidate);
    }
  }
  std::vector<double> numbers;
  for (Index i = 0; i < spec.shape[axis]; ++i) numbers.push_back(static_cast<double>(i));
  return numbers;
}

std::vector<double> MemoryResultView::read(std::string_view array) const {
  switch (require(array).type) {
    case ResultType::f32:
      return as_doubles(result_.values<float>(array));
    case ResultType::f64:
      return as_doubles(result_.values<double>(array));
    case ResultType::i32:
      return as_doubles(result_.values<std::int32_t>(array));
    case ResultType::i64:
      return as_doubles(result_.values<std::int64_t>(array));
    case ResultType::u8:
      break;
  }
  return as_doubles(result_.values<std::uint8_t>(array));
}

Table rows_of(const ResultView& result) {
  Table table(result.name());
  const auto& summary = result.summary();
  const auto categories = summary.is_object() && summary.contains("categories")
                              ? summary["categories"]
                              : nlohmann::ordered_json::object();
  for (const ResultArray& array : result.arrays()) {
    if (!array.name.starts_with(kRows) || array.shape.rank != 1) continue;
    const std::string column = array.name.substr(kRows.size());
    std::vector<double> values = result.read(array.name);
    if (!categories.contains(column)) {
      table.add_numbers(column, std::move(values));
      continue;
    }
    TextColumn words;
    words.categories = categories[column].get<std::vector<std::string>>();
    for (double code : values) {
      if (!(code >= 0.0 && code < static_cast<double>(words.categories.size()))) {
        throw FormatError(fmt::format("{}: {} holds the code {}, but there are {} words",
                                      result.name(), array.name, code, words.categories.size()));
      }
      words.codes.push_back(static_cast<std::int32_t>(code));
    }
    table.add_text(column, std::move(words));
  }
  if (table.column_names().empty()) {
    throw ConfigError(fmt::format("{}: this result of kind {} holds no table of rows",
                                  result.name(), result.info().kind));
  }
  return table;
}

void table_to_result(const Table& table, const ResultInfo& info, ResultSink& sink) {
  sink.begin(info);
  const auto n = static_cast<Index>(table.n_rows());
  nlohmann::ordered_json categories = nlohmann::ordered_json::object();
  for (const std::string& column : table.column_names()) {
    const std::string name = std::string(kRows) + column;
    if (table.has(column)) {
      sink.declare({name, ResultType::f64, {n}, {"row"}, "1", column});
      sink.write<double>(name, 0, table.numbers(column));
    } else {
      const TextColumn& words = table.text(column);
      sink.declare({name, ResultType::i32, {n}, {"row"}, "1", column});
      sink.write<std::int32_t>(name, 0, words.codes);
      categories[column] = words.categories;
    }
  }
  sink.finish({{"categories", categories}});
}

}  // namespace kvscope

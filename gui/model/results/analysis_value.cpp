#include "gui/model/results/analysis_value.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/figures/figure_kind.hpp"
#include "analysis/figures/result_view.hpp"
#include "core/base/csv_text.hpp"
#include "core/base/number_text.hpp"
#include "gui/model/traces/trace_part.hpp"

namespace kvscope::gui {

namespace {

constexpr int kQueryAxis = 2;  // [layer, q_head, row or step, ...]

std::size_t n_elements(const Shape& shape, int from) {
  std::size_t n = 1;
  for (int axis = from; axis < shape.rank; ++axis) n *= static_cast<std::size_t>(shape[axis]);
  return n;
}

/// The array's axes are the first ones of the rows: it says the same of a whole query.
bool is_prefix(const ResultArray& array, const ResultArray& rows) {
  if (array.shape.rank > rows.shape.rank) return false;
  if (array.shape.rank < std::min(kQueryAxis + 1, rows.shape.rank)) return false;
  return std::equal(array.axes.begin(), array.axes.end(), rows.axes.begin());
}

std::string title_of(const ResultArray& array) {
  std::string title = array.long_name.empty() ? array.name : array.long_name;
  const bool says_unit = array.units.empty() || array.units == "1" || array.units == "token" ||
                         title.find(array.units) != title.npos;
  if (!says_unit) title += fmt::format(" ({})", array.units);
  return title;
}

}  // namespace

AnalysisValue::AnalysisValue(AnalysisCard card, AnalysisPart part, std::string what,
                             const std::function<void(const AnalysisRun&)>& analyze,
                             JobContext& job)
    : card_(std::move(card)), part_(part), result_(std::move(what)) {
  analyze({result_, job.pool, job.progress, job.stop});
  const ResultArray& rows = result_.require(card_.rows);
  shape_ = rows.shape;
  for (const ResultArray& array : result_.arrays()) {
    if (!is_prefix(array, rows)) continue;
    Column column{array.name, title_of(array), array.type == ResultType::u8,
                  n_elements(shape_, array.shape.rank), result_.read(array.name)};
    if (column.is_flag) column.title = array.name;  // what several flags are called is the same
    const bool is_first = array.name == card_.rows;
    columns_.insert(is_first ? columns_.begin() : columns_.end(), std::move(column));
  }
  end_ = columns_.front().values.size();
  if (part_.q_head) {  // of one layer's heads
    const std::vector<double> heads = result_.axis(card_.rows, 1);
    const auto head = std::ranges::find(heads, static_cast<double>(*part_.q_head));
    first_ = static_cast<std::size_t>(head - heads.begin()) * n_elements(shape_, kQueryAxis);
    end_ = first_ + n_elements(shape_, kQueryAxis);
  }
  if (card_.query.empty()) return;
  for (const double query : result_.read(card_.query))
    queries_.push_back(static_cast<Index>(query));
}

plot::Figure AnalysisValue::figure(const std::string& metric) const {
  FigureInput input;
  input.results = {&result_};
  if (!card_.metrics.empty())
    input.options.metric = metric.empty() ? card_.metrics.front() : metric;
  if (input.options.metric == "difference") {
    input.options.metric = "";
    input.options.selector = card_.selector;
    input.options.against = card_.against;
  }
  if (part_.layer) input.options.layers = fmt::format("{}", *part_.layer);
  if (part_.q_head) input.options.heads = fmt::format("{}", *part_.q_head);
  plot::Figure figure = make_figure(find_figure_kind(card_.figure), input);
  figure.caption.insert(figure.caption.begin(), result_.name() + ".");
  return figure;
}

std::optional<Index> AnalysisValue::query_of(std::size_t row) const {
  if (queries_.empty()) return std::nullopt;
  return queries_[row / n_elements(shape_, kQueryAxis + 1) % queries_.size()];
}

std::optional<Index> AnalysisValue::key_of(std::size_t row) const {
  if (card_.page_size > 0) {
    const auto n_pages = static_cast<std::size_t>(shape_[shape_.rank - 1]);
    return static_cast<Index>(row % n_pages) * card_.page_size;
  }
  if (card_.key.empty()) return std::nullopt;
  const double key = at(card_.key, row);
  return key >= 0.0 ? std::optional(static_cast<Index>(key)) : std::nullopt;
}

std::optional<Index> AnalysisValue::nearest_query(Index query) const {
  if (queries_.empty()) return std::nullopt;
  return *std::ranges::min_element(queries_, {}, [&](Index one) { return std::abs(one - query); });
}

const AnalysisValue::Column& AnalysisValue::column(std::string_view name) const {
  return *std::ranges::find(columns_, name, &Column::name);
}

double AnalysisValue::at(std::string_view array, std::size_t row) const {
  const Column& of = column(array);
  return of.values[row / of.stride];
}

std::vector<std::pair<std::string, std::string>> AnalysisValue::lines(std::size_t row) const {
  std::vector<std::pair<std::string, std::string>> lines;
  if (shape_.rank == 2) {
    const auto n = static_cast<std::size_t>(shape_[1]);
    const ResultArray& rows = result_.require(card_.rows);
    const auto name_of = [&](std::size_t axis) {
      std::string name = rows.axes[axis];
      std::ranges::replace(name, '_', ' ');
      return name;
    };
    lines.emplace_back(name_of(0), number_text(result_.axis(card_.rows, 0)[row / n], 6));
    lines.emplace_back(name_of(1), number_text(result_.axis(card_.rows, 1)[row % n], 6));
  }
  for (const Column& one : columns_) {
    if (one.stride != 1 || (one.is_flag && one.values[row] == 0.0)) continue;
    lines.emplace_back(one.title, one.is_flag ? "yes" : number_text(one.values[row], 6));
  }
  return lines;
}

std::string AnalysisValue::words(Index query, const std::string& metric) const {
  const auto slot = std::ranges::find(queries_, query) - queries_.begin();
  const std::size_t n = n_elements(shape_, kQueryAxis + 1);
  const std::size_t begin = first_ + static_cast<std::size_t>(slot) * n;
  for (std::size_t row = begin; row < std::min(begin + n, end_); ++row) {
    if (std::isnan(columns_.front().values[row])) continue;
    std::string words;
    for (const std::string& name : card_.words) {
      const Column& one = column(name.starts_with("*/") ? metric + name.substr(1) : name);
      const double value = one.values[row / one.stride];
      words += fmt::format("{}{}: {}", words.empty() ? "" : "; ", one.title,
                           std::isnan(value) ? "none" : number_text(value, 4));
    }
    return words;
  }
  return {};
}

std::optional<std::size_t> AnalysisValue::row_of_cell(Index row, Index col) const {
  if (shape_.rank != 2 || row < 0 || col < 0 || row >= shape_[0] || col >= shape_[1])
    return std::nullopt;
  return static_cast<std::size_t>(row * shape_[1] + col);
}

std::string AnalysisValue::csv() const {
  const ResultArray& rows = result_.require(card_.rows);
  std::string csv;
  std::vector<std::vector<double>> coordinates;
  for (int axis = 0; axis < shape_.rank; ++axis) {
    const bool is_query = axis == kQueryAxis && !queries_.empty();
    const bool is_page = axis + 1 == shape_.rank && card_.page_size > 0;
    csv += is_query ? "query" : is_page ? "key" : csv_field(rows.axes[axis]);
    csv += ',';
    coordinates.push_back(result_.axis(card_.rows, axis));
    if (is_query) coordinates.back().assign(queries_.begin(), queries_.end());
    for (double& at : coordinates.back())
      at *= is_page ? static_cast<double>(card_.page_size) : 1.0;
  }
  for (const Column& one : columns_) csv += csv_field(one.name) + ",";
  csv.back() = '\n';
  for (std::size_t row = first_; row < end_; ++row) {
    if (std::isnan(columns_.front().values[row])) continue;
    for (int axis = 0; axis < shape_.rank; ++axis) {
      const auto& of = coordinates[static_cast<std::size_t>(axis)];
      csv += csv_number(of[row / n_elements(shape_, axis + 1) % of.size()]) + ",";
    }
    for (const Column& one : columns_) csv += csv_number(one.values[row / one.stride]) + ",";
    csv.back() = '\n';
  }
  return csv;
}

std::size_t AnalysisValue::bytes() const {
  std::size_t bytes = sizeof *this + bytes_of(result_);
  for (const Column& one : columns_) bytes += one.values.size() * sizeof(double);
  return bytes;
}

}  // namespace kvscope::gui

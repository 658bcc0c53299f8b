#include "notebooks_export/paper_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/error.hpp"
#include "notebooks_export/table_pivot.hpp"

namespace kvscope {

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr std::string_view kSpreadNames[] = {"", "the recorded interval", "the standard deviation",
                                             "smallest and largest value"};

using Texts = KeyTexts;

std::string spread_text(const Sample& sample, Spread spread, NumberFormat format) {
  format.percent_sign = false;
  const auto interval = [&](double low, double high) {
    return fmt::format("[{}, {}]", format_number(low, format), format_number(high, format));
  };
  const double n = static_cast<double>(sample.n);
  switch (spread) {
    case Spread::none:
      return "";
    case Spread::recorded:
      return std::isnan(sample.low_sum + sample.high_sum)
                 ? ""
                 : interval(sample.low_sum / n, sample.high_sum / n);
    case Spread::sd:
      return std::isnan(sample.sd()) ? "" : "± " + format_number(sample.sd(), format);
    case Spread::range:
      return sample.n < 2 ? "" : interval(sample.min, sample.max);
  }
  return "";
}

double derived(double value, double full, Derive derive) {
  switch (derive) {
    case Derive::none:
      return value;
    case Derive::difference:
      return value - full;
    case Derive::relative:
      return value / full - 1.0;
    case Derive::ratio:
      return value / full;
  }
  return value;
}

/// Marks rows [first, last) of one column by what they show.
void mark_column(std::vector<PaperRow>& rows, std::size_t first, std::size_t last,
                 std::size_t column, Better better) {
  if (better == Better::neither) return;
  std::map<double, Texts> shown;  // by value, as the reader sees it
  std::size_t n = 0;
  for (std::size_t r = first; r < last; ++r) {
    const PaperCell& cell = rows[r].cells[column];
    if (rows[r].role != RowRole::method || std::isnan(cell.value)) continue;
    shown[better == Better::higher ? -cell.value : cell.value].push_back(cell.text);
    ++n;
  }
  if (n < 2) return;
  const std::string best = shown.begin()->second.front();
  std::string second;
  for (const auto& [value, texts] : shown) {
    if (second.empty() && texts.front() != best) second = texts.front();
  }
  for (std::size_t r = first; r < last; ++r) {
    PaperCell& cell = rows[r].cells[column];
    if (rows[r].role != RowRole::method || std::isnan(cell.value)) continue;
    if (cell.text == best) {
      cell.mark = Mark::best;
    } else if (cell.text == second) {
      cell.mark = Mark::second;
    }
  }
}

void mark_groups(PaperTable& table, const std::vector<Better>& better) {
  for (std::size_t first = 0; first < table.rows.size();) {
    std::size_t last = first;
    const auto same_group = [&](std::size_t r) {
      return std::equal(table.rows[r].keys.begin(), table.rows[r].keys.end() - 1,
                        table.rows[first].keys.begin());
    };
    while (last < table.rows.size() && same_group(last)) ++last;
    for (std::size_t c = 0; c < better.size(); ++c)
      mark_column(table.rows, first, last, c, better[c]);
    first = last;
  }
}

/// "Each cell is the mean of 8 rows; in brackets: the recorded interval."
std::string note_of(const Pivot& pivot, Spread spread) {
  std::size_t least = std::numeric_limits<std::size_t>::max();
  std::size_t most = 0;
  for (const auto& [key, sample] : pivot.samples) {
    if (sample.n == 0) continue;
    least = std::min(least, sample.n);
    most = std::max(most, sample.n);
  }
  std::string note;
  if (most > 1) {
    note = least == most
               ? fmt::format("Each cell is the mean of {} rows of the result", most)
               : fmt::format("Each cell is the mean of {} to {} rows of the result", least, most);
  }
  if (spread != Spread::none) {
    note += fmt::format("{}{}{}", note.empty() ? "Beside it: " : "; beside it: ",
                        kSpreadNames[static_cast<std::size_t>(spread)],
                        spread == Spread::recorded && most > 1 ? ", its ends averaged" : "");
  }
  return note.empty() ? note : note + ".";
}

}  // namespace

PaperTable make_paper_table(const TidyTable& table, const TableSpec& spec) {
  if (spec.rows.empty() || spec.values.empty())
    throw ConfigError("a table needs at least one field for its rows and one value for its cells");

  // What goes where.
  const RowSlots rows = select_rows(table, spec);
  std::vector<TableField> row_fields = bind_fields(table, spec.rows, rows, spec);
  if (row_fields.empty())  // all were optional: the last one heads the only row
    row_fields =
        bind_fields(table, {spec.rows.back().substr(0, spec.rows.back().find('?'))}, rows, spec);
  const std::vector<TableField> column_fields = bind_fields(table, spec.columns, rows, spec);
  check_alike(table, rows, row_fields, column_fields);
  std::vector<BoundValue> values;
  for (const TableValue& value : spec.values)
    values.push_back(bind_value(table, value, rows, spec.spread));
  const Pivot pivot = make_pivot(rows, row_fields, column_fields, values);

  // The header.
  PaperTable out;
  out.caption = spec.caption;
  out.label = spec.label;
  out.note = note_of(pivot, spec.spread);
  for (const TableField& field : row_fields) out.row_heads.push_back(field.title());
  for (const TableField& field : column_fields) out.level_titles.push_back(field.title());
  const bool shows_values = values.size() > 1 || column_fields.empty();
  if (shows_values) out.level_titles.emplace_back();
  out.header.resize(out.level_titles.size());
  const std::vector<std::size_t> columns = column_order(pivot);
  std::vector<Better> better;
  for (const std::size_t c : columns) {
    for (const BoundValue& value : values) {
      for (std::size_t l = 0; l < column_fields.size(); ++l)
        out.header[l].push_back(pivot.columns.keys[c][l].text);
      if (shows_values) out.header.back().push_back(value.title);
      better.push_back(value.better);
    }
  }

  // The cells.
  const std::vector<std::size_t> order = row_order(pivot);
  const auto full_mean = [&](std::size_t r, const Texts& column, std::size_t v) {
    Texts group = texts_of(pivot.rows.keys[r]);
    for (const std::size_t other : order) {
      const Texts keys = texts_of(pivot.rows.keys[other]);
      if (pivot.roles[other] != RowRole::full ||
          !std::equal(keys.begin(), keys.end() - 1, group.begin()))
        continue;
      if (const Sample* sample = pivot.find(other, column, v)) return sample->mean();
    }
    throw ConfigError(fmt::format("{}: comparing with full attention needs rows of selector full",
                                  values[v].title));
  };
  for (const std::size_t r : order) {
    PaperRow row;
    row.keys = texts_of(pivot.rows.keys[r]);
    row.role = pivot.roles[r];
    for (const std::size_t c : columns) {
      const Texts column = texts_of(pivot.columns.keys[c]);
      for (std::size_t v = 0; v < values.size(); ++v) {
        const Sample* sample = pivot.find(r, column, v);
        const BoundValue& value = values[v];
        PaperCell cell;
        cell.value = sample ? sample->mean() : kNan;
        if (value.derive != Derive::none && sample) {
          const bool is_itself = row.role == RowRole::full && value.derive != Derive::ratio;
          cell.value =
              is_itself ? kNan : derived(cell.value, full_mean(r, column, v), value.derive);
        }
        cell.text = format_number(cell.value, value.format);
        if (sample && value.derive == Derive::none)
          cell.spread = spread_text(*sample, spec.spread, value.format);
        row.cells.push_back(std::move(cell));
      }
    }
    out.rows.push_back(std::move(row));
  }
  mark_groups(out, better);
  return out;
}

}  // namespace kvscope

#include "notebooks_export/paper_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "core/base/error.hpp"
#include "core/base/lists.hpp"
#include "core/base/nan.hpp"
#include "notebooks_export/table_pivot.hpp"

namespace kvscope {

namespace {

constexpr std::string_view kSpreadNames[] = {"", "the recorded interval", "the standard deviation",
                                             "smallest and largest value"};

using Texts = KeyTexts;

std::string spread_text(const CellSample& sample, Spread spread, NumberFormat format) {
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

/// Marks the best and the second of cells that compete, by what they show. Nothing is best where
/// all tie, and nothing is second where all but the best do.
void mark(const std::vector<PaperCell*>& cells, Better better) {
  if (better == Better::neither || cells.size() < 2) return;
  std::map<double, std::string> shown;
  for (const PaperCell* cell : cells)
    shown[better == Better::higher ? -cell->value : cell->value] = cell->text;
  const std::string best = shown.begin()->second;
  std::string second;
  for (const auto& [value, text] : shown) {
    if (second.empty() && text != best) second = text;
  }
  if (second.empty()) return;
  const auto n_showing = [&](const std::string& text) {
    return static_cast<std::size_t>(std::count_if(
        cells.begin(), cells.end(), [&](const PaperCell* cell) { return cell->text == text; }));
  };
  const std::size_t n_second = n_showing(second);
  if (n_second > 1 && n_showing(best) + n_second == cells.size()) second = best;
  for (PaperCell* cell : cells) {
    if (cell->text == best) {
      cell->mark = CellMark::best;
    } else if (cell->text == second) {
      cell->mark = CellMark::second;
    }
  }
}

/// Where a table's methods stand, and what each column is.
struct TableLayout {
  bool methods_in_rows = false;
  std::optional<std::size_t> method_level;  // of the header, if columns are methods
  std::vector<Better> better;               // by column
  std::vector<RowRole> column_roles;        // by column
  std::vector<std::size_t> ranked_by;       // by column: the one whose marks it has, often itself
};

void mark_methods(PaperTable& table, const TableLayout& layout) {
  if (!layout.methods_in_rows && !layout.method_level) return;
  // Cells compete that differ in the method only.
  std::map<Texts, std::pair<Better, std::vector<PaperCell*>>> rounds;
  for (PaperRow& row : table.rows) {
    for (std::size_t c = 0; c < row.cells.size(); ++c) {
      const RowRole role = layout.methods_in_rows ? row.role : layout.column_roles[c];
      if (role != RowRole::method || std::isnan(row.cells[c].value)) continue;
      if (layout.ranked_by[c] != c) continue;
      Texts round = row.keys;
      if (layout.methods_in_rows) round.pop_back();
      for (std::size_t l = 0; l < table.header.size(); ++l) {
        if (layout.methods_in_rows || l != *layout.method_level)
          round.push_back(table.header[l][c]);
      }
      auto& [better, cells] = rounds[round];
      better = layout.better[c];
      cells.push_back(&row.cells[c]);
    }
  }
  for (const auto& [round, competitors] : rounds) mark(competitors.second, competitors.first);
  for (PaperRow& row : table.rows) {
    for (std::size_t c = 0; c < row.cells.size(); ++c) {
      if (!std::isnan(row.cells[c].value)) row.cells[c].mark = row.cells[layout.ranked_by[c]].mark;
    }
  }
  for (PaperRow& row : table.rows) {  // the ranks of the others stay as they are
    for (PaperCell& cell : row.cells) {
      if (cell.is_doubted) cell.mark = CellMark::none;
    }
  }
}

/// "Not marked, since gates doubt it: too-few-trials (3 rows of the result), ..."; empty
/// if none does.
std::string doubts_sentence(const TableColumn* doubt, const RowSlots& rows) {
  if (!doubt || !doubt->is_text) return "";
  std::map<std::string, std::size_t> counts;
  for (const std::size_t row : rows) {
    for (const std::string& gate : split_words(doubt->cell(row), '+')) {
      if (!gate.empty()) ++counts[gate];
    }
  }
  std::string text;
  for (const auto& [gate, n] : counts) {
    text += fmt::format("{}{} ({} row{} of the result)", text.empty() ? "" : ", ", gate, n,
                        n == 1 ? "" : "s");
  }
  return text.empty() ? text : fmt::format("Not marked, since gates doubt it: {}.", text);
}

/// The value that ranks the quantity of value `v`: the first that shows it as it is,
/// else the first.
std::size_t ranking_value(const std::vector<BoundValue>& values, std::size_t v) {
  std::size_t first = v;
  for (std::size_t other = values.size(); other-- > 0;) {
    if (values[other].quantity != values[v].quantity) continue;
    const bool is_plain = values[other].derive == Derive::none;
    if (is_plain || values[first].derive != Derive::none) first = other;
  }
  return first;
}

/// "Prompts that the dense model does not answer are left out: common_words (512, 1024). Averaged
/// over the kinds passkey and multi_key."
std::string prompts_sentence(const LeftOut& left_out) {
  std::string text;
  for (const auto& [kind, lengths] : left_out.unsolved) {
    text += fmt::format(
        "{}{}{}", text.empty() ? "" : "; ", kind,
        lengths.front().empty() ? std::string() : fmt::format(" ({})", fmt::join(lengths, ", ")));
  }
  if (!text.empty())
    text = fmt::format("Prompts that the dense model does not answer are left out: {}.", text);
  if (left_out.kinds.size() > 1) {
    text += fmt::format("{}Averaged over the kinds {}.", text.empty() ? "" : " ",
                        fmt::join(left_out.kinds, ", "));
  }
  return text;
}

/// "Quest: 2 of 8, ..." for methods that leave rows of the result dense; empty if none does.
std::string dense_methods(const Table& table, const RowSlots& rows,
                          const std::vector<TableField>& fields) {
  const TableColumn* dense = table.find("dense");
  if (!dense || dense->is_text) return "";
  std::map<std::string, std::pair<std::size_t, std::size_t>> counts;  // dense, all
  Texts order;
  for (const TableField& field : fields) {
    if (!field.is_method()) continue;
    for (const std::size_t row : rows) {
      if (role_of_method(field.method(row)) != RowRole::method) continue;
      const auto [found, is_new] = counts.try_emplace(field.key(row).text);
      if (is_new) order.push_back(found->first);
      found->second.first += dense->numbers[row] > 0 ? 1 : 0;
      ++found->second.second;
    }
  }
  std::string text;
  for (const std::string& name : order) {
    const auto [n_dense, n] = counts[name];
    if (n_dense > 0 && n_dense < n)
      text += fmt::format("{}{}: {} of {}", text.empty() ? "" : ", ", name, n_dense, n);
  }
  return text;
}

std::string lower_case(std::string text) {
  if (!text.empty() && text[0] >= 'A' && text[0] <= 'Z')
    text[0] = static_cast<char>(text[0] - 'A' + 'a');
  return text;
}

/// "Each cell is the mean of 8 rows; in brackets: the recorded interval."
std::string note_of(const TablePivot& pivot, Spread spread, const std::string& dense) {
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
  if (!note.empty()) note += ".";
  if (!dense.empty())
    note += fmt::format("{}Rows that a method leaves dense count ({}).", note.empty() ? "" : " ",
                        dense);
  return note;
}

}  // namespace

PaperTable make_paper_table(const Table& table, const TableSpec& spec) {
  if (spec.rows.empty() || spec.values.empty())
    throw ConfigError("a table needs at least one field for its rows and one value for its cells");

  // What goes where.
  LeftOut left_out;
  const RowSlots rows = chosen_rows(table, spec, left_out);
  std::vector<TableField> row_fields = bind_fields(table, spec.rows, rows, spec);
  if (row_fields.empty())  // all were optional: the last one heads the only row
    row_fields =
        bind_fields(table, {spec.rows.back().substr(0, spec.rows.back().find('?'))}, rows, spec);
  const std::vector<TableField> column_fields = bind_fields(table, spec.columns, rows, spec);
  check_alike(table, rows, row_fields, column_fields);
  std::vector<BoundValue> values;
  std::vector<BoundValue*> ambiguous;
  for (const TableValue& value : spec.values)
    values.push_back(bind_value(table, value, rows, spec.spread));
  for (BoundValue& value : values) {  // two kinds of "Attention kept" go by their columns
    const auto same = std::count_if(values.begin(), values.end(), [&](const BoundValue& other) {
      return other.title == value.title && other.column != value.column;
    });
    if (same > 0) ambiguous.push_back(&value);
  }
  for (BoundValue* value : ambiguous) value->title = value->column->name;
  const TableColumn* doubt = table.find("doubt");
  const TablePivot pivot = make_pivot(rows, row_fields, column_fields, values, doubt);

  // The header.
  PaperTable out;
  out.caption = spec.caption;
  if (out.caption.empty() && values.size() == 1 && !column_fields.empty()) {
    constexpr std::string_view kWhich[] = {" (higher is better)", " (lower is better)", ""};
    out.caption =
        fmt::format("{} by {}{}.", values[0].title, lower_case(column_fields.back().title()),
                    kWhich[static_cast<std::size_t>(values[0].better)]);
  }
  out.label = spec.label;
  std::vector<TableField> fields = row_fields;
  fields.insert(fields.end(), column_fields.begin(), column_fields.end());
  out.note = note_of(pivot, spec.spread, dense_methods(table, rows, fields));
  for (const std::string& sentence : {prompts_sentence(left_out), doubts_sentence(doubt, rows)}) {
    if (!sentence.empty()) out.note += (out.note.empty() ? "" : " ") + sentence;
  }
  for (const TableField& field : row_fields) out.row_heads.push_back(field.title());
  for (const TableField& field : column_fields) out.level_titles.push_back(field.title());
  const bool shows_values = values.size() > 1 || column_fields.empty();
  if (shows_values) out.level_titles.emplace_back();
  out.header.resize(out.level_titles.size());
  const std::vector<std::size_t> columns = column_order(pivot);
  TableLayout layout;
  layout.methods_in_rows = !row_fields.empty() && row_fields.back().is_method();
  for (std::size_t l = 0; l < column_fields.size(); ++l) {
    if (column_fields[l].is_method()) layout.method_level = l;
  }
  for (const std::size_t c : columns) {
    const std::size_t first_of_column = layout.ranked_by.size();
    for (std::size_t v = 0; v < values.size(); ++v)
      layout.ranked_by.push_back(first_of_column + ranking_value(values, v));
    for (const BoundValue& value : values) {
      for (std::size_t l = 0; l < column_fields.size(); ++l)
        out.header[l].push_back(pivot.columns.keys[c][l].text);
      if (shows_values) out.header.back().push_back(value.title);
      layout.better.push_back(value.better);
      layout.column_roles.push_back(pivot.column_roles[c]);
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
      if (const CellSample* sample = pivot.find(other, column, v)) return sample->mean();
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
        const CellSample* sample = pivot.find(r, column, v);
        const BoundValue& value = values[v];
        PaperCell cell;
        cell.value = sample ? sample->mean() : kNan;
        cell.is_doubted = sample && sample->is_doubted;
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
  mark_methods(out, layout);
  return out;
}

}  // namespace kvscope

#include "notebooks_export/paper_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "analysis/base/number_formats.hpp"
#include "analysis/base/statistics.hpp"
#include "analysis/figures/selection.hpp"
#include "core/base/error.hpp"
#include "core/base/lists.hpp"
#include "core/base/number_text.hpp"
#include "notebooks_export/table_marks.hpp"
#include "notebooks_export/table_pivot.hpp"

namespace kvscope {

namespace {

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

/// True if the column is the cost that all were to have, or the number of keys behind it: being
/// low in it is no merit.
bool is_the_cost(const MatchedRows& matched, std::string_view column) {
  return std::any_of(matched.targets().begin(), matched.targets().end(),
                     [&](const std::string& target) {
                       const std::string quantity = split_words(target, '=').front();
                       const bool by_keys = quantity == "density" || quantity == "keys";
                       return by_keys               ? column == "density" || column == "kept"
                              : quantity == "bytes" ? column == "bytes"
                                                    : column == "predicted_us";
                     });
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

std::string lower_case(std::string text) {
  if (!text.empty() && text[0] >= 'A' && text[0] <= 'Z')
    text[0] = static_cast<char>(text[0] - 'A' + 'a');
  return text;
}

/// "Attention kept by budget (higher is better)."; of one cost "Attention kept at equal cost
/// (density=0.05; higher is better)."
std::string caption_of(const std::vector<BoundValue>& values,
                       const std::vector<TableField>& column_fields, const Texts& targets) {
  const std::string cost =
      targets.size() == 1 ? "at equal cost (" + targets.front() : std::string();
  if (values.size() != 1 || (column_fields.empty() && cost.empty()))
    return cost.empty() ? cost : "Methods " + cost + ").";
  constexpr std::string_view kWhich[] = {"higher is better", "lower is better", ""};
  const std::string_view which = kWhich[static_cast<std::size_t>(values[0].better)];
  std::string caption = values[0].title;
  if (!column_fields.empty()) caption += " by " + lower_case(column_fields.back().title());
  if (!cost.empty()) {
    caption += fmt::format(" {}{}{})", cost, which.empty() ? "" : "; ", which);
  } else if (!which.empty()) {
    caption += fmt::format(" ({})", which);
  }
  return caption + ".";
}

/// Costs that the rows were to meet.
Texts targets_of(const Table& table, const MatchedRows& matched, const RowSlots& rows) {
  Texts targets;
  for (const std::string& target : matched.targets()) {
    if (std::any_of(rows.begin(), rows.end(), [&](std::size_t row) {
          return !matched.has_no_setting(row) && table.text("match").at(row) == target;
        }))
      targets.push_back(target);
  }
  return targets;
}

/// Two kinds of "Attention kept" go by their columns.
std::vector<BoundValue> bind_values(const Table& table, const TableSpec& spec, const RowSlots& rows,
                                    const MatchedRows& matched) {
  std::vector<BoundValue> values;
  std::vector<BoundValue*> ambiguous;
  for (const TableValue& value : spec.values)
    values.push_back(bind_value(table, value, rows, spec.spread));
  for (std::size_t v = 0; v < values.size(); ++v) {
    if (!spec.values[v].better && is_the_cost(matched, values[v].column->name))
      values[v].better = Better::neither;
  }
  for (BoundValue& value : values) {
    const auto same = std::count_if(values.begin(), values.end(), [&](const BoundValue& other) {
      return other.title == value.title && other.column != value.column;
    });
    if (same > 0) ambiguous.push_back(&value);
  }
  for (BoundValue* value : ambiguous) value->title = value->column->name;
  return values;
}

void add_sentence(std::string& note, const std::string& sentence) {
  if (!sentence.empty()) note += (note.empty() ? "" : " ") + sentence;
}

// The sentences below a table.

constexpr std::string_view kSpreadNames[] = {"", "the recorded interval", "the standard deviation",
                                             "smallest and largest value"};

bool is_full(const std::vector<TableField>& fields, std::size_t row) {
  return std::any_of(fields.begin(), fields.end(), [&](const TableField& field) {
    return field.is_method() && role_of_method(field.method(row)) == RowRole::full;
  });
}

/// "Of verifier, task perplexity, budget tokens=256; n = 43 scored tokens.": what all rows agree
/// in and no field says, and how much was measured for a row of the result.
std::string subject_sentence(const Table& table, const RowSlots& rows,
                             const std::vector<TableField>& fields) {
  std::set<std::string> said;
  for (const TableField& field : fields) {
    for (const std::string& column : field.columns()) said.insert(column);
  }
  /// What all rows that say it agree in; empty if they do not, or a field shows it.
  const auto common = [&](const char* name) -> std::string {
    const TableColumn* column = table.find(name);
    if (!column || said.contains(name)) return "";
    std::set<std::string> cells;
    for (const std::size_t row : rows) cells.insert(column->cell(row));
    cells.erase("");
    return cells.size() == 1 ? *cells.begin() : "";
  };
  std::vector<std::string> parts;
  const auto add = [&](const char* before, const std::string& text, const char* after = "") {
    if (!text.empty()) parts.push_back(before + text + after);
  };
  add("", common("model"));
  add("", common("trace"));
  add("", common("phase"));
  add("task ", common("task"));
  add("", common("kind"));
  add("layer ", common("layer"));
  add("", common("length"), " tokens");
  add("", common("n_tokens"), " tokens");
  const std::string budget = common("budget");
  const TableColumn* const kinds = table.find("budget_kind");
  std::set<std::string> units;
  for (const std::size_t row : rows) units.insert(kinds ? kinds->cell(row) : "");
  units.erase("none");
  if (!budget.empty() && units.size() == 1)
    add("budget ", (units.begin()->empty() ? "" : *units.begin() + "=") + budget);
  std::string text = fmt::format("{}", fmt::join(parts, ", "));
  const auto n_of = [&](const char* name, const char* what) {
    const TableColumn* column = table.find(name);
    if (!column || column->is_text || said.contains(name)) return;
    double least = std::numeric_limits<double>::infinity();
    double most = 0.0;
    for (const std::size_t row : rows) {
      if (std::isnan(column->numbers[row])) continue;
      least = std::min(least, column->numbers[row]);
      most = std::max(most, column->numbers[row]);
    }
    if (most <= 0.0) return;
    text += least == most
                ? fmt::format("{}n = {} {}", text.empty() ? "" : "; ", most, what)
                : fmt::format("{}n = {} to {} {}", text.empty() ? "" : "; ", least, most, what);
  };
  n_of("prompts", "prompts");
  n_of("scored_tokens", "scored tokens");
  n_of("rows", table.find("layer") ? "query rows of each layer" : "query rows");
  if (text.empty()) return text;
  return (parts.empty() ? text : "Of " + text) + ".";
}

/// "Each cell is the mean of 8 rows; in brackets: the recorded interval."; `dense`: of
/// dense_methods.
std::string mean_sentence(const TablePivot& pivot, Spread spread, const std::string& dense) {
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

/// "Means over 2 kinds, 3 lengths.": what the rows of one cell differ in; empty where each is of
/// one row.
std::string means_sentence(const Table& table, const TablePivot& pivot) {
  std::vector<RowSlots> groups;
  for (const auto& [key, sample] : pivot.samples) groups.push_back(sample.rows);
  return figures::means_over(table, groups);
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

/// "† Another cost than density=0.05, hence not marked: vattention (0.194; not reached: ...).";
/// empty if every method met it. `targets`: costs of these rows. Full attention costs what it
/// costs.
std::string missed_sentence(const Table& table, const MatchedRows& matched, const Texts& targets,
                            const RowSlots& rows, const std::vector<TableField>& fields) {
  Texts order;
  std::map<std::string, std::pair<Mean, std::string>> missed;  // reached, why
  const auto reached =
      table.has("match_reached") ? table.numbers("match_reached") : std::span<const double>();
  for (const std::size_t row : rows) {
    const std::string why = matched.why_missed(row);
    if (why.empty() || is_full(fields, row)) continue;
    std::string name = table.text("selector").at(row);
    for (const TableField& field : fields) {
      if (field.is_method()) name = field.key(row).text;
    }
    if (targets.size() > 1) name += ", " + table.text("match").at(row);
    const auto [found, is_new] = missed.try_emplace(name, Mean(), why);
    if (is_new) order.push_back(name);
    if (!reached.empty()) found->second.first.add(reached[row]);
  }
  if (order.empty()) return "";
  Texts parts;
  for (const std::string& name : order) {
    const auto& [cost, why] = missed.at(name);
    parts.push_back(cost.n() > 0
                        ? fmt::format("{} ({}; {})", name, number_text(cost.value(), 3), why)
                        : fmt::format("{} ({})", name, why));
  }
  return fmt::format("† Another cost than {}, hence not marked: {}.",
                     targets.size() == 1 ? targets.front() : "was to be met",
                     fmt::join(parts, "; "));
}

/// "Prompts that the dense model does not answer are left out: common_words (512, 1024)."
std::string prompts_sentence(const LeftOut& left_out) {
  std::string text;
  for (const auto& [kind, lengths] : left_out.unsolved) {
    text += fmt::format(
        "{}{}{}", text.empty() ? "" : "; ", kind,
        lengths.front().empty() ? std::string() : fmt::format(" ({})", fmt::join(lengths, ", ")));
  }
  if (!text.empty())
    text = fmt::format("Prompts that the dense model does not answer are left out: {}.", text);
  if (left_out.has_windows)
    text += fmt::format("{}Layers with a sliding window are left out.", text.empty() ? "" : " ");
  return text;
}

/// "Not marked, since gates doubt it: too-few-trials (3 rows of the result), ..."; empty
/// if none does. `doubt`: null if the result has no such column.
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

/// "Not marked, since it keeps every key: ThinK."; empty without such a method.
std::string whole_sentence(const Table& table, const RowSlots& rows,
                           const std::vector<TableField>& fields) {
  if (!table.has("density")) return "";
  const auto density = table.numbers("density");
  std::map<std::string, bool> keeps_all;  // by method
  Texts order;
  for (const TableField& field : fields) {
    if (!field.is_method()) continue;
    for (const std::size_t row : rows) {
      if (role_of_method(field.method(row)) != RowRole::method) continue;
      const auto [found, is_new] = keeps_all.try_emplace(field.key(row).text, true);
      if (is_new) order.push_back(found->first);
      found->second = found->second && density[row] == 1.0;
    }
  }
  std::erase_if(order, [&](const std::string& name) { return !keeps_all.at(name); });
  if (order.empty()) return "";
  return fmt::format("Not marked, since {} every key: {}.",
                     order.size() == 1 ? "it keeps" : "they keep", fmt::join(order, ", "));
}

/// "Bold: apart from every other value by the 95 % interval of the paired difference over heads;
/// underlined: from all but the bold one. ..."; empty if what is shown decided.
/// `units`: of unit_word.
std::string marks_sentence(const MarkedBy& by, const std::string& units) {
  if (by.has_units) {
    return fmt::format(
        "Bold: apart from every other value by the 95 % interval of the paired difference over {}; "
        "underlined: from all but the bold one.{}{}",
        units, by.has_shown ? " A column without such differences: by what is shown alone." : "",
        by.is_undecided ? " No mark where the first two cannot be told apart." : "");
  }
  return by.has_intervals && by.is_undecided
             ? "No mark where the recorded interval of the best holds another."
             : "";
}

/// NumberFormats::sentence of the rows that are not of f32, and how many these are.
std::string formats_sentence(const Table& table, const RowSlots& rows) {
  NumberFormats first;  // of the rows that are not of f32
  std::size_t n = 0;
  for (const std::size_t row : rows) {
    NumberFormats formats;
    for (const NumberFormats::Field& field : NumberFormats::fields()) {
      if (table.has_text(field.name)) formats.*field.text = table.text(field.name).at(row);
    }
    if (formats.are_f32()) continue;
    if (n++ == 0) first = formats;
  }
  if (n == 0 || n == rows.size()) return first.sentence();
  return fmt::format("{} ({} of {} rows)", first.sentence(), n, rows.size());
}

/// Titles of rows and columns; returns what marks have to know of them.
TableLayout make_header(PaperTable& out, const std::vector<TableField>& row_fields,
                        const std::vector<TableField>& column_fields,
                        const std::vector<BoundValue>& values, const TablePivot& pivot) {
  for (const TableField& field : row_fields) out.row_heads.push_back(field.title());
  for (const TableField& field : column_fields) out.level_titles.push_back(field.title());
  const bool shows_values = values.size() > 1 || column_fields.empty();
  if (shows_values) out.level_titles.emplace_back();
  out.header.resize(out.level_titles.size());
  TableLayout layout;
  layout.methods_in_rows = !row_fields.empty() && row_fields.back().is_method();
  for (std::size_t l = 0; l < column_fields.size(); ++l) {
    if (column_fields[l].is_method()) layout.method_level = l;
  }
  for (const std::size_t c : column_order(pivot)) {
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
  return layout;
}

/// Cells of a pivot.
class CellMaker {
 public:
  CellMaker(const Table& table, const TablePivot& pivot, Spread spread)
      : table_(table), pivot_(pivot), spread_(spread), order_(row_order(pivot)) {}

  const std::vector<std::size_t>& order() const { return order_; }
  /// What cells that are made by now leave out; empty: nothing.
  std::string left_out_sentence() const {
    return leaves_out_ ? "Compared with full attention where both have rows." : "";
  }

  PaperCell cell(std::size_t r, std::size_t c, const BoundValue& value, std::size_t v) const {
    const Texts column = texts_of(pivot_.columns.keys[c]);
    const CellSample* sample = pivot_.find(r, column, v);
    const bool is_full =
        pivot_.roles[r] == RowRole::full || pivot_.column_roles[c] == RowRole::full;
    PaperCell cell;
    cell.value = sample ? sample->mean() : kNan;
    cell.is_doubted = sample && sample->is_doubted;
    cell.keeps_all = sample && sample->keeps_all && !is_full;
    cell.missed_cost = sample && sample->missed_cost && !is_full;
    if (value.derive != Derive::none && sample) {
      const bool is_itself = pivot_.roles[r] == RowRole::full && value.derive != Derive::ratio;
      const CellSample& full = full_sample(r, column, value, v);
      cell.value = is_itself ? kNan
                             : derived(mean_at_places(*sample, full, *value.column),
                                       mean_at_places(full, *sample, *value.column), value.derive);
    }
    cell.text = format_number(cell.value, value.format);
    if (sample && value.better != Better::neither)
      cell.units = units_of_cell(table_, *value.column, sample->rows);
    if (sample && value.derive == Derive::none) {
      cell.spread = spread_text(*sample, spread_, value.format);
      cell.low = sample->low_sum / static_cast<double>(sample->n);
      cell.high = sample->high_sum / static_cast<double>(sample->n);
    }
    return cell;
  }

 private:
  /// Of full attention's row in the same group.
  const CellSample& full_sample(std::size_t r, const Texts& column, const BoundValue& value,
                                std::size_t v) const {
    const Texts group = texts_of(pivot_.rows.keys[r]);
    for (const std::size_t other : order_) {
      const Texts keys = texts_of(pivot_.rows.keys[other]);
      if (pivot_.roles[other] != RowRole::full ||
          !std::equal(keys.begin(), keys.end() - 1, group.begin()))
        continue;
      if (const CellSample* sample = pivot_.find(other, column, v)) return *sample;
    }
    throw ConfigError("{}: comparing with full attention needs rows of selector full", value.title);
  }

  /// Over the rows of a sample at whose place the other has one too: of the same prompts, texts or
  /// layers.
  double mean_at_places(const CellSample& sample, const CellSample& other,
                        const TableColumn& column) const {
    Mean mean;
    for (const std::size_t row : sample.rows) {
      if (std::ranges::any_of(other.rows, [&](std::size_t of_other) {
            return figures::is_same_place(table_, row, of_other);
          }))
        mean.add(column.numbers[row]);
    }
    leaves_out_ = leaves_out_ || mean.n() < static_cast<std::int64_t>(sample.n);
    return mean.value();
  }

  const Table& table_;
  const TablePivot& pivot_;
  mutable bool leaves_out_ = false;
  Spread spread_;
  std::vector<std::size_t> order_;
};

}  // namespace

PaperTable make_paper_table(const Table& table, const TableSpec& spec) {
  if (spec.rows.empty() || spec.values.empty())
    throw ConfigError("a table needs at least one field for its rows and one value for its cells");
  LeftOut left_out;
  const MatchedRows matched(table);
  const RowSlots rows = chosen_rows(table, spec, matched, left_out);
  const Texts targets = targets_of(table, matched, rows);
  std::vector<TableField> row_fields = bind_fields(table, spec.rows, rows, spec);
  if (row_fields.empty())  // all were optional: the last one heads the only row
    row_fields =
        bind_fields(table, {spec.rows.back().substr(0, spec.rows.back().find('?'))}, rows, spec);
  const std::vector<TableField> column_fields = bind_fields(table, spec.columns, rows, spec);
  check_alike(table, rows, matched, row_fields, column_fields);
  const std::vector<BoundValue> values = bind_values(table, spec, rows, matched);
  const TablePivot pivot = make_pivot(rows, row_fields, column_fields, values, table, matched);

  PaperTable out;
  out.caption = spec.caption;
  if (out.caption.empty()) out.caption = caption_of(values, column_fields, targets);
  out.label = spec.label;
  std::vector<TableField> fields = row_fields;
  fields.insert(fields.end(), column_fields.begin(), column_fields.end());
  out.note = subject_sentence(table, rows, fields);
  for (const std::string& sentence :
       {mean_sentence(pivot, spec.spread, dense_methods(table, rows, fields)),
        missed_sentence(table, matched, targets, rows, fields), formats_sentence(table, rows),
        means_sentence(table, pivot), prompts_sentence(left_out),
        doubts_sentence(table.find("doubt"), rows), whole_sentence(table, rows, fields)})
    add_sentence(out.note, sentence);
  const TableLayout layout = make_header(out, row_fields, column_fields, values, pivot);

  const CellMaker cells(table, pivot, spec.spread);
  const std::vector<std::size_t> columns = column_order(pivot);
  for (const std::size_t r : cells.order()) {
    PaperRow row;
    row.keys = texts_of(pivot.rows.keys[r]);
    row.role = pivot.roles[r];
    for (const std::size_t c : columns) {
      for (std::size_t v = 0; v < values.size(); ++v)
        row.cells.push_back(cells.cell(r, c, values[v], v));
    }
    out.rows.push_back(std::move(row));
  }
  add_sentence(out.note, cells.left_out_sentence());
  std::string units;  // of the first value that has some
  for (const BoundValue& value : values) {
    if (units.empty()) units = unit_word(table, *value.column);
  }
  add_sentence(out.note, marks_sentence(mark_methods(out, layout), units));
  return out;
}

}  // namespace kvscope

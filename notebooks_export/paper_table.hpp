// A table as a paper prints it: rows of methods, columns of lengths or budgets, the best value in
// bold and the second underlined. Made from tidy rows by a spec; written by latex_table and
// markdown_table.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/base/table.hpp"
#include "core/base/nan.hpp"
#include "notebooks_export/metric_info.hpp"
#include "notebooks_export/table_units.hpp"

namespace kvscope {

/// What a cell shows of its value v and the value f of the full method in the same column.
enum class Derive {
  none,        // v
  difference,  // v - f
  relative,    // v / f - 1
  ratio,       // v / f
};

/// What stands beside a cell's value.
enum class Spread {
  none,
  recorded,  // the interval that the result holds: X_low and X_high beside X, mass_low for
             // mass_mean
  sd,        // standard deviation of the rows behind the cell
  range,     // their smallest and largest value
};

/// One metric that cells show.
struct TableValue {
  std::string column;  // "accuracy|mass_mean": the first of these that the result has
  Derive derive = Derive::none;
  std::string title;                   // empty: the metric's own
  std::optional<Better> better;        // empty: as find_metric says; unknown metrics are not ranked
  std::optional<NumberFormat> format;  // empty: the metric's own
};

/// What goes where. A field is "selector"; "model|trace", the first that the result has;
/// "selector+budget", both in one ("SpecAttn (p = 0.95)"); "model|trace?", left out if the result
/// has none or only one value of it. Field "budget" takes its unit from column budget_kind.
struct TableSpec {
  std::vector<std::string> rows;
  std::vector<std::string> columns;  // levels of the header, outermost first
  std::vector<TableValue> values;    // several: the innermost level of the header
  std::vector<std::pair<std::string, std::string>> where;  // column, text that its cells must have
  Spread spread = Spread::none;
  std::map<std::string, std::string> names;       // "quest" -> "Quest"
  std::map<std::string, std::string> row_titles;  // field -> heading, where the default will not do
  bool binary_lengths = false;                    // 4096 as 4k
  std::string caption;  // empty: the metric's title and the columns', where the header has not
  std::string label;    // for \ref
};

enum class CellMark { none, best, second };

struct PaperCell {
  std::string text;    // "-" if there is no value
  std::string spread;  // "± 0.01", "[0.90, 0.95]" or empty
  CellMark mark = CellMark::none;
  double value = 0.0;  // as shown, but unrounded; NaN if there is none
  double low = kNan;   // the interval that the result records of it; NaN: none
  double high = kNan;
  CellUnits units;           // what it is the mean of, where the result holds that
  bool is_doubted = false;   // by a gate (column `doubt`): never marked
  bool keeps_all = false;    // every key: there is nothing that its method could lose; not marked
  bool missed_cost = false;  // at equal cost: its method's cost is another, see the note
};

/// What a row is compared as.
enum class RowRole {
  method,
  full,     // dense attention: shown, never ranked
  control,  // chooses without looking (random keys, recent keys): shown, never ranked
  oracle,   // knows the answer: shown, never ranked
};

struct PaperRow {
  std::vector<std::string> keys;  // one per row head
  std::vector<PaperCell> cells;   // one per column
  RowRole role = RowRole::method;
};

struct PaperTable {
  std::vector<std::string> row_heads;     // "Model", "Method"
  std::vector<std::string> level_titles;  // what each header level is: "Length"; may be empty
  std::vector<std::vector<std::string>> header;  // [level][column]
  std::vector<PaperRow> rows;  // full methods first, controls and oracles last, in each
                               // group
  std::string caption;
  std::string label;
  std::string note;  // what a cell is the mean of, what is beside it; may be empty
};

/// Groups, averages (NaN left out), compares. Methods are ranked: down a column if rows are
/// methods (within equal outer row heads), along a row if columns are (within equal other column
/// fields), else not at all. A value is the best if every other one is apart from it, and the
/// second if all but the best are: by the 95 % interval of the paired difference, over the units
/// that the result holds (prompts, blocks of tokens, heads); else by the recorded interval of the
/// better one; else by what is shown. So nothing is marked where the first two cannot be told
/// apart, and one method alone has no mark. Columns that show one quantity (perplexity, its
/// difference, its increase) are ranked once. Cells of rows that a gate doubts (column doubt,
/// analysis/simulate/gates.hpp) have no mark, and the note names the gates. Rows that do not depend
/// on a column field (no budget: full attention) show their value in every column.
///
/// Rows at equal cost (column match, analysis/sweep/match_rows.hpp) differ in their budgets by
/// intent: what must agree is the cost, unless `match` is a field. Cells of methods that missed it
/// have a dagger, no mark, and their cost in the note; the cost itself is not ranked.
///
/// Of a sweep's rows those of whole layers with full attention are taken, unless a field or `where`
/// names q_head, kv_head or window. Prompts that the dense model does not answer (column
/// dense_solves) are left out, and named in the note, unless a field or `where` names kind.
///
/// Throws ConfigError for a field that the result lacks, an empty selection, a value column of text
/// or without numbers, a table of more than 10 000 cells, a derived value without a full method,
/// and rows that would average unlike things (two phases, tasks, selectors or budgets in one cell).
PaperTable make_paper_table(const Table& table, const TableSpec& spec);

}  // namespace kvscope

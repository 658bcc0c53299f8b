// kvscope table: results as tables that go into a paper.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/frame/save_text.hpp"
#include "analysis/cli/frame/text_table.hpp"
#include "analysis/figures/selection.hpp"
#include "core/base/lists.hpp"
#include "core/base/suggest.hpp"
#include "notebooks_export/latex_table.hpp"
#include "notebooks_export/markdown_table.hpp"
#include "notebooks_export/open_result.hpp"
#include "notebooks_export/table_fields.hpp"
#include "notebooks_export/table_presets.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

enum class TableFormat { automatic, latex, tabular, markdown, csv };
}  // namespace kvscope::cli

template <>
struct kvscope::EnumNames<kvscope::Spread> {
  static constexpr std::array<std::string_view, 4> value = {"none", "recorded", "sd", "range"};
};

namespace kvscope::cli {
namespace {

using Texts = std::vector<std::string>;

Texts split_list(const Texts& lists, std::string_view option) {
  Texts words;
  for (const std::string& list : lists) {
    for (std::string& word : split_words(list, ',')) {
      if (word.empty())
        throw UsageError("--{}: expected names between the commas of \"{}\"", option, list);
      words.push_back(std::move(word));
    }
  }
  return words;
}

/// "NAME=TEXT" in two.
std::pair<std::string, std::string> split_assignment(const std::string& text,
                                                     std::string_view option) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    throw UsageError("--{}: expected NAME=TEXT, found \"{}\"", option, text);
  return {text.substr(0, equals), text.substr(equals + 1)};
}

/// "mass_mean", "mass_mean:ratio".
TableValue parse_value(const std::string& text) {
  TableValue value;
  const std::size_t colon = text.find(':');
  value.column = text.substr(0, colon);
  if (colon == std::string::npos) return value;
  static constexpr std::array<std::string_view, 3> kNames = {"difference", "relative", "ratio"};
  const std::string how = text.substr(colon + 1);
  const auto found = std::ranges::find(kNames, how);
  if (found == kNames.end()) {
    throw UsageError(
        "--value: expected difference, relative or ratio after the colon, found \"{}\"", text);
  }
  value.derive = static_cast<Derive>(found - kNames.begin() + 1);
  const auto metric = find_metric(value.column);
  value.title = fmt::format("{} ({})", metric ? metric->title : value.column,
                            how == "ratio"      ? "of full"
                            : how == "relative" ? "change"
                                                : "difference");
  NumberFormat format = metric ? metric->format : NumberFormat{};
  if (value.derive == Derive::difference) format.plus_sign = true;
  if (value.derive == Derive::relative) format = {2, true, true, true};
  if (value.derive == Derive::ratio) format = {3, false, false, false};
  value.format = format;
  return value;
}

class TableCommand final : public Command {
 public:
  CommandCard card() const override {
    return {
        "table",
        "a table for a paper from any result",
        "Reads the rows of sweeps, simulations and analyses (CSV, JSON or HDF5) and writes "
        "methods against lengths or budgets as LaTeX (booktabs), Markdown or CSV. The best "
        "value of a column is bold and the second underlined where they are apart from all that "
        "follow: by the 95 % interval of the paired difference over prompts, blocks of tokens "
        "or heads, if the result holds them, else by its recorded interval; full attention, "
        "controls (random keys, ...) and oracles are shown, not ranked. At equal cost (--match) "
        "rows are methods without their budgets, and what missed the cost has a dagger. Prompts "
        "that the dense model does not answer are left out and named, unless kind is a field or "
        "in --where. A preset has the layout of a table in the papers; --rows, --columns and "
        "--value replace its parts. A field is a column, a|b (the first there is), a+b (both in "
        "one), or a? (left out if it distinguishes nothing).",
        {{"kvscope table --rows selector --columns budget --value mass_mean sweep.csv",
          "attention kept, methods by budget, as Markdown"},
         {"kvscope table quest-passkey passkey.csv --out passkey.tex",
          "Quest's table, for \\input"},
         {"kvscope table --rows layer --value eval_mass,kernel_mass quest.h5 --format latex",
          "one line per layer of an analysis"},
         {"kvscope table --presets", "the layouts there are"}}};
  }
  void declare(OptionSet& options) override {
    options
        .positional("PRESET|RESULT", "a layout of the papers, then results of any command", words_,
                    /*required=*/false)
        .of(kinds_of_results());
    options.add("rows", "FIELD[,FIELD]", "what rows are: outer groups first, the method last",
                rows_);
    options.add("columns", "FIELD[,FIELD]", "what columns are: outer headings first", columns_);
    options.add(
        "value", "COLUMN[,COLUMN]",
        "what cells show; COLUMN:difference, :relative or :ratio compares with full attention",
        values_);
    options.add("where", "COLUMN=VALUE", "take only such rows; an empty VALUE means no entry",
                where_);
    options.add(
        "spread", "HOW",
        "with each mean: the recorded interval, the sd or the range of the rows in the cell",
        spread_);
    options.add("better", "WORD", "which values are best [known by the metric]", better_);
    options.add("digits", "N", "digits after the point [by the metric]", digits_, in(0, 15));
    options.add("name", "NAME=TEXT", "how a method, model, ... is called in the table", names_);
    options.add("caption", "TEXT", "caption [the preset's]", caption_);
    options.add("label", "TEXT", "for \\ref in LaTeX [the preset's]", label_);
    options.add(
        "format", "HOW",
        "latex, tabular (without the floating environment), markdown or csv; automatic goes "
        "by the ending of --out",
        format_);
    options.flag("wide",
                 "LaTeX: over both columns of a page (table*); without it, where one column seems "
                 "too narrow",
                 wide_);
    options.add("size", "WORD",
                fmt::format("LaTeX: letters of the table, one of {}", fmt::join(kLatexSizes, ", ")),
                size_);
    options
        .add("out", "FILE", "write to this file (.tex, .md, .csv) instead of standard output", out_)
        .short_name = 'o';
    options.flag("overwrite", "replace an existing file", overwrite_);
    options.flag("presets", "list the presets and end", list_);
  }

  int run(const OptionSet&, const std::string&) override {
    if (list_) {
      list_presets();
      return kOk;
    }
    const TableFormat format = resolved_format();
    if (std::ranges::find(kLatexSizes, size_) == kLatexSizes.end())
      throw UsageError("--size: expected one of {}, found \"{}\"", fmt::join(kLatexSizes, ", "),
                       size_);
    if ((wide_ || size_ != kLatexSizes[0]) && format != TableFormat::latex)
      throw UsageError("--wide and --size are of a table in LaTeX: add --format latex");
    TableSpec spec = make_spec();
    if (files_.empty()) throw UsageError("RESULT is missing: expected at least one result file");
    if (out_) check_new_output(*out_, overwrite_);
    const PaperTable table = make_paper_table(read_rows(files_), spec);
    const std::string text =
        format == TableFormat::csv ? csv_table(table)
        : format == TableFormat::markdown
            ? markdown_table(table)
            : latex_table(table, {.floating = format == TableFormat::latex,
                                  .wide = wide_ ? std::optional(true) : std::nullopt,
                                  .size = size_});
    if (out_) {
      write_new_file(*out_, text, overwrite_);
    } else {
      print_data(text);
    }
    const double width = latex_width(table, size_);
    if (format == TableFormat::latex && width > kLatexPage)
      note(
          "kvscope: the table is about {:.0f} pt wide, a page of two columns has {:.0f}: {:.0f} "
          "too many; a smaller --size or fewer columns (--value, --columns) fit",
          width, kLatexPage, width - kLatexPage);
    return kOk;
  }

 private:
  static void list_presets() {
    TextTable table({"preset", "layout", "rows", "columns"});
    for (const TablePreset& preset : table_presets()) {
      table.add_row({preset.name, preset.summary,
                     fmt::format("{}", fmt::join(preset.spec.rows, ", ")),
                     fmt::format("{}", fmt::join(preset.spec.columns, ", "))});
    }
    print(table.text());
  }

  TableFormat resolved_format() const {
    if (format_ != TableFormat::automatic) return format_;
    if (!out_) return TableFormat::markdown;
    const std::string extension = out_->extension().string();
    if (extension == ".tex") return TableFormat::latex;
    if (extension == ".md") return TableFormat::markdown;
    if (extension == ".csv") return TableFormat::csv;
    throw UsageError(
        "--out: expected a file name that ends in .tex, .md or .csv (or --format), found {}",
        out_->string());
  }

  /// The preset (the first word, if it is one) with what the options replace; sets files_.
  TableSpec make_spec() {
    TableSpec spec;
    files_.assign(words_.begin(), words_.end());
    const TablePreset* preset = words_.empty() ? nullptr : find_table_preset(words_.front());
    if (preset) {
      spec = preset->spec;
      files_.erase(files_.begin());
    } else if (rows_.empty() || values_.empty()) {
      Texts known;
      for (const TablePreset& each : table_presets()) known.push_back(each.name);
      throw UsageError("expected a preset ({}), or --rows and --value: {}{}",
                       fmt::join(known, ", "),
                       rows_.empty() && values_.empty() ? "both are missing"
                       : rows_.empty()                  ? "--rows is missing"
                                                        : "--value is missing",
                       words_.empty() ? "" : did_you_mean(words_.front(), known));
    }
    if (!rows_.empty()) spec.rows = split_list(rows_, "rows");
    if (!columns_.empty()) spec.columns = split_list(columns_, "columns");
    if (!values_.empty()) {
      const bool keeps_format = preset && spec.values.size() == 1;
      const TableValue old = keeps_format ? spec.values.front() : TableValue{};
      spec.values.clear();
      for (const std::string& text : split_list(values_, "value")) {
        spec.values.push_back(parse_value(text));
        if (spec.values.back().derive == Derive::none) spec.values.back().derive = old.derive;
        if (!spec.values.back().format && keeps_format && old.derive == Derive::ratio)
          spec.values.back().format = old.format;
      }
    }
    for (TableValue& value : spec.values) {
      if (better_) value.better = better_;
      if (!digits_) continue;
      if (!value.format) {
        const auto metric = find_metric(split_words(value.column, '|').front());
        value.format = metric ? metric->format : NumberFormat{};
      }
      value.format->digits = *digits_;
    }
    spec.spread = spread_;
    spec.names = figures::method_names();
    for (const std::string& text : names_) {
      const auto [key, shown] = split_assignment(text, "name");
      spec.names[key] = shown;
    }
    for (const std::string& text : where_) spec.where.push_back(split_assignment(text, "where"));
    if (caption_) spec.caption = *caption_;
    if (label_) spec.label = *label_;
    if (spec.label.find_first_of("{}\\%#~ \n") != std::string::npos)
      throw UsageError("--label: expected letters, digits, : and -, found \"{}\"", spec.label);
    return spec;
  }

  Texts words_;
  std::vector<fs::path> files_;
  Texts rows_;
  Texts columns_;
  Texts values_;
  Texts where_;
  Texts names_;
  Spread spread_ = Spread::none;
  std::optional<Better> better_;
  std::optional<int> digits_;
  std::optional<std::string> caption_;
  std::optional<std::string> label_;
  TableFormat format_ = TableFormat::automatic;
  std::optional<fs::path> out_;
  bool overwrite_ = false;
  bool list_ = false;
  bool wide_ = false;
  std::string size_ = std::string(kLatexSizes[0]);
};

}  // namespace

KVSCOPE_COMMAND(610, TableCommand)

}  // namespace kvscope::cli

// What figures share: choices written as text, colours by method, means with bands.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/base/table.hpp"
#include "analysis/figures/figure_kind.hpp"
#include "analysis/plot/figure.hpp"

namespace kvscope::figures {

/// "a,b" to its parts, without empty ones.
std::vector<std::string> parse_words(std::string_view text);

/// parse_index_list of an option that may be left empty, which chooses nothing in particular.
std::vector<Index> parse_numbers(std::string_view text, std::string_view option);

/// The slot of `wanted` in an axis of coordinates. Throws ConfigError listing what there is.
Index slot_of(std::span<const double> axis, Index wanted, std::string_view what,
              const std::string& where);

/// The slots of the coordinates that an option ("layers", "heads") names; all if it names none.
/// Throws as slot_of.
std::vector<Index> slots_of(std::span<const double> axis, std::string_view text,
                            std::string_view option, const std::string& where);

/// The one layer or head that is shown: the option's, which must name one, else `fallback`.
Index one_of(std::string_view option_text, std::string_view option, Index fallback);

/// The look that a method has in every figure, whatever its options or preset: a slot of
/// plot::Theme's series. Empty for what this build does not know, stacks and references.
std::optional<int> method_slot(std::string_view selector);

/// Tones of the methods of one figure: oracles are references, the others have their method_slot.
/// Where two of a figure have one colour, or a method comes with several settings, the later ones
/// take colours that are free; the first twelve slots never give way.
class MethodTones {
 public:
  explicit MethodTones(const std::vector<std::string>& selectors);
  /// A selector that was given to the constructor.
  plot::Tone of(const std::string& selector) const { return tones_.at(selector); }

 private:
  std::map<std::string, plot::Tone> tones_;
};

/// "quest" -> "Quest", "quest-kernel" -> "Quest (kernel)", for every selector of this build: what
/// figures and tables call them.
std::map<std::string, std::string> method_names();

/// How a method is written in a legend: "Quest page-size=32" for "quest:page-size=32". A label
/// (rich_text.hpp) that shows every character of the name.
std::string method_label(std::string_view selector);

/// True if rows were to meet different costs (--match): one setting may have met several.
bool has_several_costs(const Table& table);

/// Columns budget and budget_kind (tokens without it) of a row: "256", "25%", "$p$ = 0.9",
/// "16 pages"; empty where the method takes none. Of several costs that which the row was to meet.
std::string budget_label(const Table& table, std::size_t row);
/// Column selector with its budget: "Quest, 256".
std::string method_at_budget(const Table& table, std::size_t row);

/// "Means over 8 protocols, 2 lengths.": what rows of one group, which become one number, differ
/// in: models, texts, kinds of prompts, ...; empty where every group is one row.
std::string means_over(const Table& table, const std::vector<std::vector<std::size_t>>& groups);
/// The same of rows whose groups are methods at their budgets.
std::string means_over_methods(const Table& table, const std::vector<std::size_t>& rows);
/// The cells of a row that say of what it is, besides its method and budget; with or without its
/// layer and head.
std::string words_of_place(const Table& table, std::size_t row, bool with_head = true);
/// Whether two rows say the same there; an empty cell says nothing.
bool is_same_place(const Table& table, std::size_t a, std::size_t b);

/// [rows]: whether a row has its method's numbers in these columns: those that the method has a
/// number of anywhere in the table, at least one. What failed has none.
std::vector<bool> rows_with_numbers(const Table& table, const std::vector<std::string>& columns);

/// Rows at places where every line has one, so that means compare; all of them if there is no such
/// place.
struct CommonRows {
  std::vector<std::size_t> rows;
  std::size_t n_places = 0;
  std::size_t n_left_out = 0;  // places
  bool has_common = true;

  /// What of that is to be said, of places that are called "layer"; else empty.
  std::string sentence(std::string_view place) const;
};
CommonRows common_rows(const std::vector<std::size_t>& rows,
                       const std::function<std::string(std::size_t)>& line_of,
                       const std::function<std::string(std::size_t)>& place_of);

/// A mean or median with its band.
struct Summary {
  double middle = 0.0;
  double low = 0.0;
  double high = 0.0;
  std::size_t n = 0;  // values that are not NaN
};

/// ci: normal 95 % interval of the mean, 1.96 standard errors on each side.
Summary summarize(std::vector<double> values, BandKind band);

/// The band of a mean of several: the ends of their recorded intervals, averaged with the weights
/// that their values have in the mean, which therefore lies between them.
class MeanEnds {
 public:
  /// n: values that the interval stands for. NaN: of these no interval is known.
  void add(double low, double high, std::size_t n = 1) {
    low_ += static_cast<double>(n) * low;
    high_ += static_cast<double>(n) * high;
    n_ += n;
  }
  /// NaN where nothing was added, or one part without interval.
  double low() const { return low_ / static_cast<double>(n_); }
  double high() const { return high_ / static_cast<double>(n_); }

 private:
  double low_ = 0.0;
  double high_ = 0.0;
  std::size_t n_ = 0;
};

/// "Lines: means; bands: 95 % intervals over n = 64 heads." The number of values per point may
/// vary.
std::string band_sentence(BandKind band, std::size_t n_min, std::size_t n_max,
                          std::string_view of_what);

/// Ticks at these numbers, labelled as tokens.
std::vector<plot::Tick> ticks_at(const std::vector<double>& numbers, plot::TickFormat format);

/// Ticks in the middle of cells 0..n-1 for the names of rows or columns.
std::vector<plot::Tick> cell_ticks(std::span<const double> names);
/// The same for numbers that an axis writes in this format.
std::vector<plot::Tick> cell_ticks(std::span<const double> names, plot::TickFormat format);

}  // namespace kvscope::figures

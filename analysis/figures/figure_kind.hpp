// Every figure by name: what it shows, what it needs, which command makes that, and how it is made.
//
// A figure is one file in analysis/figures/kinds: NAME.cpp defines `FigureKind figure_NAME()` and
// is then known to the command line, its listing and the explorer (CMake writes the table).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/figures/result_view.hpp"
#include "analysis/plot/figure.hpp"
#include "core/base/fields.hpp"

namespace kvscope {

/// What the lines and their bands stand for.
enum class BandKind {
  ci,         // mean, and its 95 % interval
  quartiles,  // median, and the middle half
  range,      // mean, smallest and largest
  none,       // mean alone
};

/// What of a result is shown. Every figure reads the fields it knows; an empty text leaves the
/// choice to the figure, which says in its caption what it chose.
struct FigureOptions {
  std::string metric = option(metric, "metric", "",
                              "what is measured, several with commas; kvscope figures names them");
  std::string selector = option(selector, "selector", "",
                                "methods shown, with commas, as the result spells them [all]");
  std::string against = option(against, "against", "",
                               "the method whose losses are taken from those of the selector: "
                               "figures of heads show the difference");
  std::string match =
      option(match, "match", "",
             "heads of two results that belong together: at the same place, or of the most similar "
             "maps [place where both have the same layers and heads, else maps]");
  std::string budget =
      option(budget, "budget", "", "the budget shown, where a figure shows one [the middle one]");
  std::string layers =
      option(layers, "layers", "", "layers shown, as 0,4-7 [all, or the one the figure names]");
  std::string heads =
      option(heads, "heads", "", "query heads shown, as 0,4-7 [all, or the one the figure names]");
  std::string phase =
      option(phase, "phase", "", "phase shown, where a table has several [the first]");
  std::string x = option(
      x, "x", "",
      "the first axis: keys, bytes or flops as measured, or the nominal budget [the figure's own]");
  BandKind band = option(
      band, "band", BandKind::ci,
      "lines and bands: mean and 95 % interval (ci), median and quartiles, mean and range, or "
      "none");
  std::string panels = option(
      panels, "panels", "",
      "columns of a table, with commas (model,text): a panel for each of their values [all in "
      "one]");
  std::string title =
      option(title, "title", "", "words above the figure [none: papers put them into the caption]");
};

struct FigureInput {
  std::vector<const ResultView*> results;
  FigureOptions options;
};

struct FigureKind {
  std::string name;     // "budget"
  std::string shows;    // one sentence without a full stop
  std::string needs;    // results and what must be in them
  std::string command;  // one that makes such a result
  /// Kinds of results in the order they are given; "a|b" is either, "a?" may be left out.
  std::vector<std::string> kinds;
  std::vector<std::string> options;  // fields of FigureOptions that matter
  std::function<plot::Figure(const FigureInput&)> make;
};

/// In alphabetical order.
std::vector<FigureKind> figure_kinds();

/// The kind of that name. Throws ConfigError with the nearest name for an unknown one.
FigureKind find_figure_kind(const std::string& name);

/// Whether a result of kind `found` fits an entry of FigureKind::kinds: "a|b" is either, "a?" may
/// be left out.
bool accepts_kind(std::string_view wanted, std::string_view found);

/// Makes a figure, checked: throws ConfigError for the wrong number or kind of results, options the
/// figure does not know, an empty selection, or numbers that cannot be drawn.
plot::Figure make_figure(const FigureKind& kind, const FigureInput& input);

}  // namespace kvscope

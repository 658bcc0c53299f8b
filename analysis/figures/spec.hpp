// What kinds of figures are made of: numbers that `metric` chooses from, methods that `selector`
// chooses, what was left out, panels side by side, axes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "analysis/figures/figure_kind.hpp"
#include "analysis/plot/figure.hpp"

namespace kvscope::figures {

/// The place of `word` among `names`. Throws ConfigError naming them all for another word.
std::size_t metric_slot(const std::string& word, const std::vector<std::string>& names);

/// The methods that an option names; all if it names none.
class Wanted {
 public:
  /// Throws ConfigError for one that is not among those that there are.
  Wanted(std::string_view option, const std::vector<std::string>& there);
  bool has(const std::string& selector) const;

 private:
  std::vector<std::string> words_;
};

/// Throws ConfigError: the choices leave nothing of the result. `why` ends the sentence.
[[noreturn]] void fail_empty(const std::string& where, std::string_view why);

/// What a figure does not show, with reasons, for its caption: each pair once.
class LeftOut {
 public:
  void add(const std::string& what, const std::string& why = "");
  /// Adds "Not taken: a (why); b." to a caption; nothing if nothing was left out.
  void say(std::string_view head, std::vector<std::string>& caption) const;

 private:
  std::vector<std::string> parts_;
};

/// A figure of `n` panels, at most `most` in a row, as wide as the page if there are several, with
/// one legend above.
plot::Figure panels_in_rows(std::size_t n, int most);
/// The same for a figure that there is.
void set_in_rows(plot::Figure& figure, std::size_t n, int most);

/// Two panels over the width of the page.
plot::Figure side_by_side(plot::Panel left, plot::Panel right);

/// An axis of contexts: "Context length (tokens)".
plot::Axis length_axis();

/// An axis of rows from top to bottom with a name each, none of which is left out.
plot::Axis names_axis(std::vector<plot::Tick> names, plot::Range range);
/// The same for rows 0, 1, 2, ...
plot::Axis names_axis(const std::vector<std::string>& names);

}  // namespace kvscope::figures

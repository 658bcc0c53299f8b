// Labels with formulas: text between dollar signs may have subscripts and superscripts.
//
// "mass, $S_q$" or "$10^{−3}$": inside dollars, _ and ^ take the next letter or a group in braces.
// Outside, every character is itself, and two dollars are one. Greek letters and signs are written
// as such (UTF-8).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "analysis/plot/canvas.hpp"

namespace kvscope::plot {

/// A piece of a label in one size on one baseline.
struct TextRun {
  std::string text;
  double scale = 1.0;  // times the label's size
  double rise = 0.0;   // upwards, in em of the label
};

/// The label that shows `text` as it is, for names from files.
std::string verbatim(std::string_view text);

std::vector<TextRun> parse_rich(std::string_view label);

/// The characters alone: "Sq" for "$S_q$".
std::string plain_text(std::string_view label);

/// The label in LaTeX: formulas in math mode, special characters escaped (core/base/escape.hpp),
/// Greek letters and signs by their names; line breaks become blanks. Compiles, and runs no
/// command, whatever the label is.
std::string tex_text(std::string_view label);

/// The same with the label's line breaks, for a node that has an alignment.
std::string tex_lines(std::string_view label);

double rich_width(const TextMetrics& metrics, std::string_view label, double size);

/// Draws one line; `at` is on the baseline.
void draw_rich(Canvas& canvas, Point at, std::string_view label, const TextStyle& style);

/// Breaks at blanks so that no line is wider than `width`, where words allow; line breaks in the
/// label stay.
std::vector<std::string> wrap_rich(const TextMetrics& metrics, std::string_view label, double size,
                                   double width);

}  // namespace kvscope::plot

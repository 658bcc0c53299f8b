// What tests ask of figures: that means and medians lie in their bands, and what captions say.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <string>

#include "analysis/plot/figure.hpp"

namespace kvscope::testing {

/// The number of points with a band, each of which is checked.
inline std::size_t check_bands(const plot::Figure& figure) {
  std::size_t n_points = 0;
  for (const plot::Panel& panel : figure.panels) {
    for (const plot::Mark& mark : panel.marks) {
      const auto* line = std::get_if<plot::Line>(&mark);
      if (line == nullptr || line->low.empty()) continue;
      for (std::size_t i = 0; i < line->x.size(); ++i) {
        if (std::isnan(line->low[i]) || std::isnan(line->high[i])) continue;
        INFO(panel.y.label << ", " << line->label << " at " << line->x[i]);
        const double rounding = 1e-6 * std::abs(line->y[i]) + 1e-12;
        CHECK(line->y[i] >= line->low[i] - rounding);
        CHECK(line->y[i] <= line->high[i] + rounding);
        ++n_points;
      }
    }
  }
  return n_points;
}

/// The sentences of a caption, a line each.
inline std::string caption_of(const plot::Figure& figure) {
  std::string text;
  for (const std::string& sentence : figure.caption) text += sentence + "\n";
  return text;
}

}  // namespace kvscope::testing

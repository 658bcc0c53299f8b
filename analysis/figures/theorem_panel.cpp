#include "analysis/figures/theorem_panel.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace kvscope::figures {

std::string_view array_of(TheoremBound bound) {
  static constexpr std::array<std::string_view, kTheoremBounds> kArrays = {
      "bounds/printed", "bounds/repaired",   "bounds/jensen",
      "bounds/worst",   "main_text/relaxed", "main_text/exact"};
  return kArrays[static_cast<std::size_t>(bound)];
}

std::string_view title_of(TheoremBound bound) {
  static constexpr std::array<std::string_view, kTheoremBounds> kTitles = {
      "as printed",          "norms repaired",          "Jensen (proved)",
      "worst case (proved)", "main text, as published", "main text, spherical"};
  return kTitles[static_cast<std::size_t>(bound)];
}

void TheoremCounts::add(double bound, double cosine, bool is_violated) {
  ++n_;
  violated_ += is_violated ? 1 : 0;
  trivial_ += !is_upper(bound_) && bound <= kSaysNothing ? 1 : 0;
  above_ += !is_upper(bound_) && bound > 1.0 ? 1 : 0;
  gaps_ += is_upper(bound_) ? bound - cosine : cosine - bound;
}

plot::Note TheoremCounts::note(double line) const {
  const auto rows = static_cast<double>(std::max<std::size_t>(1, n_));
  const auto percent = [&](std::size_t n) {
    const double share = 100.0 * static_cast<double>(n) / rows;
    return share >= 10.0 ? fmt::format("{:.0f}%", share) : fmt::format("{:.2g}%", share);
  };
  plot::Note note;
  note.text = fmt::format("violated: {} ({})\nmean gap {:.3g}", violated_, percent(violated_),
                          gaps_ / rows);
  if (trivial_ > 0) note.text += fmt::format("\nsays nothing: {}", percent(trivial_));
  if (above_ > 0) note.text += fmt::format("\nabove 1: {}", percent(above_));
  const auto n_lines = 1 + std::ranges::count(note.text, '\n');
  note.x = is_upper(bound_) ? 0.03 : 0.97;
  note.align = is_upper(bound_) ? plot::Note::Align::left : plot::Note::Align::right;
  note.y = is_upper(bound_) ? 0.02 : 0.96 - line * static_cast<double>(n_lines);
  return note;
}

plot::Panel theorem_panel(TheoremBound bound, plot::Range range) {
  const bool upper = is_upper(bound);
  plot::Panel panel;
  panel.title = std::string(title_of(bound));
  panel.x.label = upper ? "Upper bound on cos($M$, $q$)" : "Lower bound on cos($k$*, $q$)";
  panel.y.label = upper ? "Measured cos($M$, $q$)" : "Measured cos($k$*, $q$)";
  panel.x.range = panel.y.range = range;
  panel.aspect = 1.0;
  plot::Area failed{
      .label = "bound violated", .tone = {plot::Role::highlight, 0}, .x = {range.low, range.high}};
  const std::vector<double> diagonal = failed.x;
  failed.low = upper ? diagonal : std::vector<double>(2, range.low);
  failed.high = upper ? std::vector<double>(2, range.high) : diagonal;
  panel.marks.emplace_back(std::move(failed));
  return panel;
}

plot::Rule theorem_diagonal() {
  return {plot::Rule::Kind::diagonal, 0.0, "bound = cosine"};
}

}  // namespace kvscope::figures

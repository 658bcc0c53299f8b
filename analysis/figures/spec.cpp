#include "analysis/figures/spec.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/figures/selection.hpp"
#include "core/base/error.hpp"
#include "core/base/escape.hpp"
#include "core/base/json_reader.hpp"

namespace kvscope::figures {

std::size_t metric_slot(const std::string& word, const std::vector<std::string>& names) {
  const auto found = std::ranges::find(names, word);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  throw ConfigError("metric: there is no \"{}\"; choose from {}", word, fmt::join(names, ", "));
}

Wanted::Wanted(std::string_view option, const std::vector<std::string>& there)
    : words_(parse_words(option)) {
  for (const std::string& word : words_) {
    if (std::ranges::find(there, word) == there.end())
      throw ConfigError("selector: there is no {} here; there is {}", quote(word), some_of(there));
  }
}

bool Wanted::has(const std::string& selector) const {
  return words_.empty() || std::ranges::find(words_, selector) != words_.end();
}

void fail_empty(const std::string& where, std::string_view why) {
  throw ConfigError("{}: the selection is empty: {}", where, why);
}

void LeftOut::add(const std::string& what, const std::string& why) {
  std::string part = why.empty() ? what : fmt::format("{} ({})", what, why);
  if (std::ranges::find(parts_, part) == parts_.end()) parts_.push_back(std::move(part));
}

void LeftOut::say(std::string_view head, std::vector<std::string>& caption) const {
  if (!parts_.empty()) caption.push_back(fmt::format("{}: {}.", head, fmt::join(parts_, "; ")));
}

plot::Figure panels_in_rows(std::size_t n, int most) {
  plot::Figure figure;
  set_in_rows(figure, n, most);
  return figure;
}

void set_in_rows(plot::Figure& figure, std::size_t n, int most) {
  figure.columns = std::min(static_cast<int>(n), most);
  figure.span = n > 1 ? plot::Span::full : plot::Span::column;
  figure.legend = plot::LegendPlace::above;
}

plot::Figure side_by_side(plot::Panel left, plot::Panel right) {
  plot::Figure figure{.columns = 2, .span = plot::Span::full};
  figure.panels.push_back(std::move(left));
  figure.panels.push_back(std::move(right));
  return figure;
}

plot::Axis length_axis() {
  return {.label = "Context length (tokens)",
          .scale = plot::ScaleKind::log2,
          .format = plot::TickFormat::tokens};
}

plot::Axis names_axis(std::vector<plot::Tick> names, plot::Range range) {
  return {.range = range, .ticks = std::move(names), .has_names = true, .reversed = true};
}

plot::Axis names_axis(const std::vector<std::string>& names) {
  std::vector<plot::Tick> ticks;
  for (const std::string& name : names) ticks.push_back({static_cast<double>(ticks.size()), name});
  return names_axis(std::move(ticks), {-0.6, static_cast<double>(names.size()) - 0.4});
}

}  // namespace kvscope::figures

#include "analysis/figures/panels_by.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analysis/figures/selection.hpp"
#include "analysis/figures/spec.hpp"
#include "analysis/plot/rich_text.hpp"
#include "core/base/error.hpp"
#include "core/trace/result.hpp"

namespace kvscope::figures {

namespace {

constexpr std::size_t kMostPanels = 64;

/// Rows of a table that have the same words in some columns.
struct PanelRows {
  std::string name;  // the words
  std::vector<std::size_t> rows;
};

std::vector<PanelRows> groups_of(const Table& table, const std::vector<std::string>& columns) {
  std::vector<PanelRows> groups;
  std::map<std::string, std::size_t> place_of;
  for (std::size_t r = 0; r < table.n_rows(); ++r) {
    std::vector<std::string> words;
    std::string key;
    for (const std::string& column : columns) {
      std::string word = table.at(column).cell(r);
      key += word + "\n";
      if (!word.empty()) words.push_back(std::move(word));
    }
    std::string name = fmt::format("{}", fmt::join(words, ", "));
    const auto [place, is_new] = place_of.emplace(key, groups.size());
    if (is_new) groups.push_back({std::move(name), {}});
    groups[place->second].rows.push_back(r);
  }
  return groups;
}

plot::Figure figure_of(const FigureKind& kind, const FigureInput& input, const Table& part) {
  MemoryResult rows(part.name());
  table_to_result(part, input.results[0]->info(), rows);
  FigureInput own = input;
  own.options.panels.clear();
  own.results = {&rows};
  return kind.make(own);
}

/// What has a place in the legend, and with it a look.
template <class Visit>
void visit_tones(plot::Panel& panel, Visit&& visit) {
  for (plot::Mark& mark : panel.marks) {
    std::visit(
        [&](auto& own) {
          if constexpr (requires {
                          own.tone;
                          own.label;
                        })
            visit(own.label, own.tone);
        },
        mark);
  }
}

/// Methods that come in several panels look as in the figure of all rows, whatever stands beside
/// them in one panel.
void set_tones(plot::Figure& part, plot::Figure& whole) {
  std::map<std::string, plot::Tone> by_label;
  for (plot::Panel& panel : whole.panels)
    visit_tones(panel, [&](const std::string& label, plot::Tone tone) {
      if (!label.empty()) by_label.emplace(label, tone);
    });
  for (plot::Panel& panel : part.panels) {
    std::vector<std::pair<plot::Tone, plot::Tone>> changes;
    visit_tones(panel, [&](const std::string& label, plot::Tone tone) {
      const auto found = by_label.find(label);
      if (found != by_label.end()) changes.emplace_back(tone, found->second);
    });
    visit_tones(panel, [&](const std::string&, plot::Tone& tone) {
      const auto found = std::ranges::find(changes, tone, &decltype(changes)::value_type::first);
      if (found != changes.end()) tone = found->second;
    });
  }
}

void put_beside(plot::Figure& figure, plot::Figure part, const std::string& name) {
  for (plot::Panel& panel : part.panels) {
    const std::string own = std::exchange(panel.title, plot::verbatim(name));
    if (!own.empty()) panel.title += "\n" + own;
    figure.panels.push_back(std::move(panel));
  }
}

/// Sentences of the parts in their order; what is not true of all says of which.
class Captions {
 public:
  void add(const std::string& name, const std::vector<std::string>& caption) {
    ++n_parts_;
    for (const std::string& sentence : caption) {
      const auto [place, is_new] = places_.emplace(sentence, said_.size());
      if (is_new) said_.push_back({sentence, {}});
      said_[place->second].second.push_back(plot::verbatim(name));
    }
  }
  std::vector<std::string> sentences() const {
    constexpr std::size_t kMostNames = 4;
    std::vector<std::string> list;
    for (const auto& [sentence, names] : said_) {
      if (names.size() == n_parts_)
        list.push_back(sentence);
      else if (names.size() <= kMostNames)
        list.push_back(fmt::format("{}: {}", fmt::join(names, "; "), sentence));
      else
        list.push_back(fmt::format("{} of {} panels: {}", names.size(), n_parts_, sentence));
    }
    return list;
  }

 private:
  std::size_t n_parts_ = 0;
  std::map<std::string, std::size_t> places_;
  std::vector<std::pair<std::string, std::vector<std::string>>> said_;  // and the parts' names
};

}  // namespace

plot::Figure panels_by(const FigureKind& kind, const FigureInput& input) {
  const Table table = rows_of(*input.results[0]);
  const std::vector<PanelRows> groups = groups_of(table, parse_words(input.options.panels));
  plot::Figure whole = figure_of(kind, input, table);
  if (groups.size() * whole.panels.size() > kMostPanels)
    throw ConfigError(
        "panels: {} has {} values of {}, and {} panels of each: expected at most {} panels in one "
        "figure; take fewer columns or metrics, or fewer rows",
        table.name(), groups.size(), input.options.panels, whole.panels.size(), kMostPanels);
  const bool has_one = whole.panels.size() == 1;
  plot::Figure figure = has_one ? panels_in_rows(groups.size(), balanced_columns(groups.size()))
                                : panels_in_rows(groups.size() * whole.panels.size(),
                                                 static_cast<int>(whole.panels.size()));
  figure.share_y = has_one;
  Captions captions;
  for (const PanelRows& group : groups) {
    plot::Figure part;
    try {
      part = figure_of(kind, input, rows_in(table, group.rows));
    } catch (const ConfigError& error) {
      throw ConfigError("{} (panel {})", error.what(), group.name);
    }
    set_tones(part, whole);
    captions.add(group.name, part.caption);
    put_beside(figure, std::move(part), group.name);
  }
  figure.caption = captions.sentences();
  return figure;
}

}  // namespace kvscope::figures

#include "analysis/figures/selection.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "analysis/base/statistics.hpp"
#include "analysis/plot/rich_text.hpp"
#include "analysis/plot/scale.hpp"
#include "core/base/error.hpp"
#include "core/base/lists.hpp"
#include "core/selectors/method_spec.hpp"

namespace kvscope::figures {

std::vector<std::string> parse_words(std::string_view text) {
  std::vector<std::string> words = split_words(text, ',');
  std::erase(words, "");
  return words;
}

std::vector<Index> parse_numbers(std::string_view text, std::string_view option) {
  return text.empty() ? std::vector<Index>{} : parse_index_list(text, option);
}

Index slot_of(std::span<const double> axis, Index wanted, std::string_view what,
              const std::string& where) {
  const auto it = std::ranges::find(axis, static_cast<double>(wanted));
  if (it != axis.end()) return it - axis.begin();
  const std::span<const double> some = axis.first(std::min<std::size_t>(axis.size(), 20));
  throw ConfigError("{}: there is no {} {}; it has {}{}", where, what, wanted,
                    fmt::join(some, ", "), some.size() < axis.size() ? ", ..." : "");
}

std::vector<Index> slots_of(std::span<const double> axis, std::string_view text,
                            std::string_view option, const std::string& where) {
  std::vector<Index> slots;
  for (const Index number : parse_numbers(text, option))
    slots.push_back(slot_of(axis, number, option.substr(0, option.size() - 1), where));
  if (slots.empty()) {
    slots.resize(axis.size());
    std::iota(slots.begin(), slots.end(), 0);
  }
  return slots;
}

Index one_of(std::string_view option_text, std::string_view option, Index fallback) {
  const std::vector<Index> numbers = parse_numbers(option_text, option);
  if (numbers.empty()) return fallback;
  if (numbers.size() == 1) return numbers[0];
  throw ConfigError("{}: this figure shows one, found \"{}\"", option, option_text);
}

namespace {

constexpr int kColours = 12;  // of a theme's series

/// The look of every method, by slot: the first twelve have colours of their own, in the order in
/// which colours are told apart best; each further dozen has the same colours with other markers
/// and dashes. Slots 6, 18, 30 and 42 are grey, for controls.
constexpr std::string_view kSlots[] = {"quoka",
                                       "quest",
                                       "specattn",
                                       "snapkv",
                                       "h2o",
                                       "streamingllm",
                                       "random",
                                       "keydiff",
                                       "sparq",
                                       "loki",
                                       "tova",
                                       "magicpig",
                                       "pqcache",
                                       "vattention",
                                       "twilight",
                                       "adakv",
                                       "rocketkv",
                                       "longformer",
                                       "recent",
                                       "doublesparsity",
                                       "sampleattention",
                                       "retroinfer",
                                       "duoattention",
                                       "shadowkv",
                                       "indexer",
                                       "blockmean",
                                       "lessismore",
                                       "rocket2",
                                       "kascade",
                                       "bigbird",
                                       "sink-recent",
                                       "doublep",
                                       "socket",
                                       "unique",
                                       "xattention",
                                       "flexprefill",
                                       "skip-softmax",
                                       "spargeattn",
                                       "minference-a-shape",
                                       "minference-block-sparse",
                                       "minference-vertical-slash",
                                       "",
                                       "strided",
                                       "knorm",
                                       "lagkv",
                                       "qfilters",
                                       "expected-attention",
                                       "critical",
                                       "think"};

/// The method that a selector's text names, also by a preset.
std::string_view entry_name(std::string_view selector) {
  const std::string_view name = method_name(selector);
  for (const SelectorEntry& entry : selector_registry().entries()) {
    if (entry.presets.contains(std::string(name))) return entry.name;
  }
  return name;
}

}  // namespace

std::optional<int> method_slot(std::string_view selector) {
  const std::string_view name = entry_name(selector);
  const auto at = std::find(std::begin(kSlots), std::end(kSlots), name);
  if (at == std::end(kSlots) || name.empty()) return std::nullopt;
  return static_cast<int>(at - std::begin(kSlots));
}

MethodTones::MethodTones(const std::vector<std::string>& selectors) {
  std::set<int> slots;
  std::set<int> colours;
  const auto take = [&](const std::string& selector, int slot) {
    tones_[selector] = {plot::Role::series, slot};
    slots.insert(slot);
    colours.insert(slot % kColours);
  };
  int n_oracles = 0;
  for (const std::string& selector : selectors) {
    const std::string_view base = method_name(selector);
    const std::optional<int> own = method_slot(selector);
    if (is_oracle(base) || base == "full") {
      const int slot_of_oracle = n_oracles == 0 ? 0 : n_oracles + 1;
      tones_[selector] = {plot::Role::reference, base == "full" ? 1 : slot_of_oracle};
      n_oracles += base == "full" ? 0 : 1;
    } else if (own && *own < kColours && !slots.contains(*own)) {
      take(selector, *own);
    }
  }
  colours.insert(6);  // grey is for what chooses at random
  for (const std::string& selector : selectors) {
    if (tones_.contains(selector)) continue;
    // Its own look, if nobody here has its colour; else a colour that is free; else a look that is.
    const std::optional<int> own = method_slot(selector);
    if (own && !slots.contains(*own) &&
        (*own % kColours == 6 || !colours.contains(*own % kColours))) {
      take(selector, *own);
      continue;
    }
    int slot = 0;
    while (slot < kColours && colours.contains(slot)) ++slot;
    if (slot == kColours && own) slot = *own;
    while (slots.contains(slot)) ++slot;
    take(selector, slot);
  }
}

std::map<std::string, std::string> method_names() {
  const auto& entries = selector_registry().entries();
  const auto short_title = [](const SelectorEntry& entry) {
    return entry.title.substr(0, entry.title.find(':'));
  };
  std::map<std::string, int> uses;  // "Oracle" heads several titles
  for (const SelectorEntry& entry : entries) ++uses[short_title(entry)];
  std::map<std::string, std::string> names = {{"greedy", "Greedy decoding"}};
  for (const SelectorEntry& entry : entries) {
    std::string name = short_title(entry);
    if (uses[name] > 1) {
      std::string rest = entry.name.substr(entry.name.find('-') + 1);
      if (rest.starts_with("top") && rest.size() == 4) rest.insert(3, 1, '-');  // top-k, top-p
      name += " " + rest;
    }
    names[entry.name] = name;
    for (const auto& [preset, options] : entry.presets) {
      const bool is_longer = preset.starts_with(entry.name + "-");
      names[preset] =
          is_longer ? fmt::format("{} ({})", name, preset.substr(entry.name.size() + 1)) : preset;
    }
  }
  return names;
}

std::string method_label(std::string_view selector) {
  const std::map<std::string, std::string> names = method_names();
  std::string label;
  for (const std::string& part : split_words(selector, '+')) {  // of a stack
    const std::string id = part.substr(0, part.find_first_of(":@ "));
    const auto name = names.find(id);
    label += (label.empty() ? "" : "+") + (name == names.end() ? id : name->second) +
             part.substr(id.size());
  }
  std::replace(label.begin(), label.end(), ':', ' ');
  return plot::verbatim(label);
}

bool has_several_costs(const Table& table) {
  if (!table.has_text("match")) return false;
  const auto& costs = table.text("match").categories;
  return std::ranges::count_if(costs, [](const std::string& cost) { return !cost.empty(); }) > 1;
}

std::string budget_label(const Table& table, std::size_t row) {
  if (has_several_costs(table) && table.text("selector").at(row) != "full")
    return table.text("match").at(row);
  if (!table.has("budget") || std::isnan(table.numbers("budget")[row])) return "";
  const double budget = table.numbers("budget")[row];
  const std::string kind =
      table.has_text("budget_kind") ? table.text("budget_kind").at(row) : std::string("tokens");
  if (kind == "ratio") return fmt::format("{:.4g}%", 100.0 * budget);
  if (kind == "p") return fmt::format("$p$ = {:g}", budget);
  if (kind == "pages") return fmt::format("{:g} pages", budget);
  return plot::tick_text(budget, plot::TickFormat::tokens);
}

std::string method_at_budget(const Table& table, std::size_t row) {
  const std::string budget = budget_label(table, row);
  return method_label(table.text("selector").at(row)) + (budget.empty() ? "" : ", " + budget);
}

namespace {

/// Columns that say of what a row is, besides its method and budget.
constexpr std::pair<std::string_view, std::string_view> kPlaces[] = {
    {"file", "files"},         {"trace", "traces"},      {"model", "models"},
    {"text", "texts"},         {"phase", "phases"},      {"kind", "kinds"},
    {"protocol", "protocols"}, {"length", "lengths"},    {"depth", "depths"},
    {"turn", "turns"},         {"hardware", "cards"},    {"batch", "batches"},
    {"context", "contexts"},   {"chunk", "chunks"},      {"position", "positions"},
    {"draft", "drafts"},       {"gamma", "gammas"},      {"n_tokens", "numbers of tokens"},
    {"layer", "layers"},       {"q_head", "query heads"}};

}  // namespace

std::string means_over(const Table& table, const std::vector<std::vector<std::size_t>>& groups) {
  std::vector<std::string> parts;
  for (const auto& [name, words] : kPlaces) {
    const TableColumn* const column = table.find(name);
    std::set<std::string> values;
    for (const std::vector<std::size_t>& rows : groups) {
      std::set<std::string> of_group;
      for (std::size_t i = 0; column != nullptr && i < rows.size(); ++i)
        of_group.insert(column->cell(rows[i]));
      if (of_group.size() > 1) values.merge(of_group);
    }
    if (values.empty()) continue;
    parts.push_back(fmt::format("{} {}", values.size(), words));
    if (name == "kind")
      parts.back() += plot::verbatim(fmt::format(" ({})", fmt::join(values, ", ")));
  }
  if (!parts.empty()) return fmt::format("Means over {}.", fmt::join(parts, ", "));
  const bool are_single =
      std::ranges::all_of(groups, [](const auto& rows) { return rows.size() < 2; });
  return are_single ? "" : "Means over rows that the table does not tell apart.";
}

std::string means_over_methods(const Table& table, const std::vector<std::size_t>& rows_of_all) {
  std::map<std::string, std::vector<std::size_t>> methods;
  for (const std::size_t row : rows_of_all) methods[method_at_budget(table, row)].push_back(row);
  std::vector<std::vector<std::size_t>> groups;
  for (auto& [name, rows] : methods) groups.push_back(std::move(rows));
  return means_over(table, groups);
}

std::string words_of_place(const Table& table, std::size_t row, bool with_head) {
  std::string words;
  for (const auto& [name, plural] : kPlaces) {
    if (!with_head && (name == "layer" || name == "q_head")) continue;
    if (const TableColumn* const column = table.find(name)) words += column->cell(row) + "\n";
  }
  return words;
}

bool is_same_place(const Table& table, std::size_t a, std::size_t b) {
  return std::ranges::all_of(kPlaces, [&](const auto& place) {
    const TableColumn* const column = table.find(place.first);
    if (column == nullptr) return true;
    const std::string of_a = column->cell(a), of_b = column->cell(b);
    return of_a == of_b || of_a.empty() || of_b.empty();
  });
}

std::vector<bool> rows_with_numbers(const Table& table, const std::vector<std::string>& columns) {
  const TextColumn& selectors = table.text("selector");
  std::vector<bool> has_any(table.n_rows()), lacks_one(table.n_rows());
  for (const std::string& name : columns) {
    const auto values = table.has(name) ? table.numbers(name) : std::span<const double>();
    std::vector<bool> has_method(selectors.categories.size());
    for (std::size_t r = 0; r < values.size(); ++r) {
      if (!std::isfinite(values[r])) continue;
      has_any[r] = true;
      has_method[static_cast<std::size_t>(selectors.codes[r])] = true;
    }
    for (std::size_t r = 0; r < values.size(); ++r) {
      if (!std::isfinite(values[r]) && has_method[static_cast<std::size_t>(selectors.codes[r])])
        lacks_one[r] = true;
    }
  }
  for (std::size_t r = 0; r < has_any.size(); ++r) has_any[r] = has_any[r] && !lacks_one[r];
  return has_any;
}

CommonRows common_rows(const std::vector<std::size_t>& rows,
                       const std::function<std::string(std::size_t)>& line_of,
                       const std::function<std::string(std::size_t)>& place_of) {
  std::map<std::string, std::set<std::string>> lines_at;
  std::set<std::string> lines;
  for (const std::size_t row : rows)
    lines_at[place_of(row)].insert(*lines.insert(line_of(row)).first);
  const auto has_all = [&](const auto& at) { return at.second.size() == lines.size(); };
  const auto n_common = static_cast<std::size_t>(std::ranges::count_if(lines_at, has_all));
  CommonRows common{.n_places = lines_at.size(), .has_common = n_common > 0 || rows.empty()};
  if (common.has_common) common.n_left_out = lines_at.size() - n_common;
  for (const std::size_t row : rows) {
    if (common.n_left_out == 0 || has_all(*lines_at.find(place_of(row))))
      common.rows.push_back(row);
  }
  return common;
}

std::string CommonRows::sentence(std::string_view place) const {
  if (!has_common)
    return fmt::format("No {} has numbers of all methods: these are means over different ones.",
                       place);
  if (n_left_out == 0) return "";
  return fmt::format("{} of {} {}s are left out for all: one of the methods has no number there.",
                     n_left_out, n_places, place);
}

Summary summarize(std::vector<double> values, BandKind band) {
  std::erase_if(values, [](double v) { return std::isnan(v); });
  const double nan = std::numeric_limits<double>::quiet_NaN();
  if (values.empty()) return {nan, nan, nan, 0};
  Summary s{.n = values.size()};
  s.middle = s.low = s.high = mean(values);
  switch (band) {
    case BandKind::none:
      break;
    case BandKind::ci: {
      double squares = 0.0;
      for (double v : values) squares += (v - s.middle) * (v - s.middle);
      const auto n = static_cast<double>(s.n);
      const double half = s.n > 1 ? 1.96 * std::sqrt(squares / (n - 1.0) / n) : 0.0;
      s.low = s.middle - half;
      s.high = s.middle + half;
      break;
    }
    case BandKind::quartiles:
      s.middle = quantile(values, 0.5);
      s.low = quantile(values, 0.25);
      s.high = quantile(values, 0.75);
      break;
    case BandKind::range:
      s.low = *std::ranges::min_element(values);
      s.high = *std::ranges::max_element(values);
      break;
  }
  return s;
}

std::string band_sentence(BandKind band, std::size_t n_min, std::size_t n_max,
                          std::string_view of_what) {
  const std::string n =
      n_min == n_max ? fmt::format("n = {}", n_min) : fmt::format("n = {} to {}", n_min, n_max);
  return fmt::format("Lines: {} {} {}.",
                     band == BandKind::ci          ? "means; bands: 95% intervals of the mean over"
                     : band == BandKind::quartiles ? "medians; bands: the middle half of"
                     : band == BandKind::range     ? "means; bands: smallest to largest of"
                                                   : "means over",
                     n, of_what);
}

std::vector<plot::Tick> ticks_at(const std::vector<double>& numbers, plot::TickFormat format) {
  std::vector<plot::Tick> ticks;
  for (double number : numbers) ticks.push_back({number, plot::tick_text(number, format)});
  return ticks;
}

std::vector<plot::Tick> cell_ticks(std::span<const double> names) {
  std::vector<plot::Tick> ticks;
  for (std::size_t i = 0; i < names.size(); ++i)
    ticks.push_back({static_cast<double>(i) + 0.5, fmt::format("{}", names[i])});
  return ticks;
}

std::vector<plot::Tick> cell_ticks(std::span<const double> names, plot::TickFormat format) {
  std::vector<plot::Tick> ticks = cell_ticks(names);
  for (std::size_t i = 0; i < names.size(); ++i) ticks[i].label = plot::tick_text(names[i], format);
  return ticks;
}

}  // namespace kvscope::figures

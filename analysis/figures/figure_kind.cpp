#include "analysis/figures/figure_kind.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "analysis/number_formats.hpp"
#include "core/base/error.hpp"
#include "core/base/fields_json.hpp"
#include "core/base/lists.hpp"
#include "core/base/suggest.hpp"
#include "core/trace/result.hpp"

namespace kvscope {

namespace {

void check_options(const FigureKind& kind, const FigureOptions& options) {
  const FigureOptions defaults;
  std::vector<std::pair<std::string, std::string>> given;
  const nlohmann::ordered_json now = fields_to_json(options);
  const nlohmann::ordered_json before = fields_to_json(defaults);
  for (const auto& [field, value] : now.items()) {
    if (value == before[field] || field == "title") continue;
    if (std::find(kind.options.begin(), kind.options.end(), field) != kind.options.end()) continue;
    throw ConfigError(fmt::format("figure {} has no choice of {}; it knows {}", kind.name, field,
                                  kind.options.empty()
                                      ? std::string("title")
                                      : fmt::format("{}, title", fmt::join(kind.options, ", "))));
  }
}

}  // namespace

FigureKind find_figure_kind(const std::string& name) {
  std::vector<std::string> names;
  for (FigureKind& kind : figure_kinds()) {
    if (kind.name == name) return std::move(kind);
    names.push_back(kind.name);
  }
  throw ConfigError(fmt::format("there is no figure \"{}\"; kvscope figures lists them{}", name,
                                did_you_mean(name, names)));
}

bool accepts_kind(std::string_view wanted, std::string_view found) {
  if (wanted.ends_with('?')) wanted.remove_suffix(1);
  const std::vector<std::string> words = split_words(wanted, '|');
  return std::find(words.begin(), words.end(), found) != words.end();
}

plot::Figure make_figure(const FigureKind& kind, const FigureInput& input) {
  const auto n_needed = static_cast<std::size_t>(
      std::count_if(kind.kinds.begin(), kind.kinds.end(),
                    [](const std::string& wanted) { return !wanted.ends_with('?'); }));
  if (input.results.size() < n_needed || input.results.size() > kind.kinds.size()) {
    throw ConfigError(fmt::format("figure {} needs {}, found {} result{}; {} makes what it needs",
                                  kind.name, kind.needs, input.results.size(),
                                  input.results.size() == 1 ? "" : "s", kind.command));
  }
  for (std::size_t i = 0; i < input.results.size(); ++i) {
    const ResultView& result = *input.results[i];
    if (accepts_kind(kind.kinds[i], result.info().kind)) continue;
    throw ConfigError(fmt::format("figure {} needs {}, but {} is a result of kind {}; {} makes one",
                                  kind.name, kind.needs, result.name(), result.info().kind,
                                  kind.command));
  }
  check_options(kind, input.options);
  plot::Figure figure = kind.make(input);
  figure.name = kind.name;
  if (!input.options.title.empty()) figure.title = input.options.title;
  for (const ResultView* result : input.results) {
    const std::string formats = NumberFormats::of(result->info().config).sentence();
    if (!formats.empty() && std::ranges::find(figure.caption, formats) == figure.caption.end())
      figure.caption.push_back(formats);
  }
  plot::check_figure(figure);
  return figure;
}

}  // namespace kvscope

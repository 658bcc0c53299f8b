#include "analysis/figures/figure_kind.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "analysis/base/number_formats.hpp"
#include "analysis/figures/panels_by.hpp"
#include "analysis/plot/rich_text.hpp"
#include "core/base/error.hpp"
#include "core/base/fields_json.hpp"
#include "core/base/json.hpp"
#include "core/base/lists.hpp"
#include "core/base/suggest.hpp"
#include "core/trace/result.hpp"

namespace kvscope {

namespace {

void check_options(const FigureKind& kind, const FigureOptions& options) {
  const FigureOptions defaults;
  std::vector<std::pair<std::string, std::string>> given;
  const Json now = fields_to_json(options);
  const Json before = fields_to_json(defaults);
  for (const auto& [field, value] : now.items()) {
    if (value == before[field] || field == "title") continue;
    if (std::ranges::find(kind.options, field) != kind.options.end()) continue;
    throw ConfigError("figure {} has no choice of {}; it knows {}", kind.name, field,
                      kind.options.empty()
                          ? std::string("title")
                          : fmt::format("{}, title", fmt::join(kind.options, ", ")));
  }
}

/// Of the configuration, or of the columns of a table without one.
NumberFormats formats_of(const ResultView& result) {
  NumberFormats formats = NumberFormats::of(result.info().config);
  const Json& summary = result.summary();
  if (!formats.are_f32() || !summary.is_object() || !summary.contains("categories")) return formats;
  for (const NumberFormats::Field& field : NumberFormats::fields()) {
    for (const auto& text : summary["categories"].value(field.name, Json()))
      if (text.is_string() && text != "f32") formats.*field.text = text.get<std::string>();
  }
  return formats;
}

/// "Made from verifier.h5.", "Made from verifier (model), book.txt (text)."; empty where the result
/// says neither what it was made from nor, as a table does, of which model or trace its rows are.
std::string inputs_sentence(const ResultView& result) {
  constexpr std::size_t kMostNames = 4;
  std::vector<std::string> words;
  const auto add = [&](const std::string& name, std::string_view what) {
    if (name.empty()) return;
    std::string word = plot::verbatim(std::filesystem::path(name).filename().string());
    if (!what.empty() && what != "trace") word += fmt::format(" ({})", what);
    if (std::ranges::find(words, word) == words.end()) words.push_back(std::move(word));
  };
  for (const auto& input : inputs_of(result.info())) {
    const std::string what = input.at("what").get<std::string>();
    if (what != "artifact" && what != "examples" && what != "hardware")
      add(input.value("name", std::string()), what);
  }
  const Json& summary = result.summary();
  if (words.empty() && summary.is_object() && summary.contains("categories")) {
    for (const char* column : {"model", "trace"}) {
      for (const auto& text : summary["categories"].value(column, Json()))
        if (text.is_string())
          add(text.get<std::string>(), column == std::string_view("model") ? "model" : "");
    }
  }
  if (words.empty()) return "";
  const std::size_t n_more = words.size() > kMostNames ? words.size() - kMostNames : 0;
  words.resize(words.size() - n_more);
  return fmt::format("Made from {}{}.", fmt::join(words, ", "),
                     n_more > 0 ? fmt::format(" and {} more", n_more) : std::string());
}

}  // namespace

FigureKind find_figure_kind(const std::string& name) {
  std::vector<std::string> names;
  for (FigureKind& kind : figure_kinds()) {
    if (kind.name == name) return std::move(kind);
    names.push_back(kind.name);
  }
  throw ConfigError("there is no figure \"{}\"; kvscope figures lists them{}", name,
                    did_you_mean(name, names));
}

bool accepts_kind(std::string_view wanted, std::string_view found) {
  if (wanted.ends_with('?')) wanted.remove_suffix(1);
  const std::vector<std::string> words = split_words(wanted, '|');
  const bool is_earlier = found == "simulate-passkey" || found == "simulate-needle" ||
                          found == "simulate-ruler";  // as retrievals were called
  return std::ranges::find(words, is_earlier ? "simulate-retrieval" : found) != words.end();
}

plot::Figure make_figure(const FigureKind& kind, const FigureInput& input) {
  const auto n_needed = static_cast<std::size_t>(std::ranges::count_if(
      kind.kinds, [](const std::string& wanted) { return !wanted.ends_with('?'); }));
  if (input.results.size() < n_needed || input.results.size() > kind.kinds.size()) {
    throw ConfigError("figure {} needs {}, found {} result{}; {} makes what it needs", kind.name,
                      kind.needs, input.results.size(), input.results.size() == 1 ? "" : "s",
                      kind.command);
  }
  for (std::size_t i = 0; i < input.results.size(); ++i) {
    const ResultView& result = *input.results[i];
    if (accepts_kind(kind.kinds[i], result.info().kind)) continue;
    throw ConfigError("figure {} needs {}, but {} is a result of kind {}; {} makes one", kind.name,
                      kind.needs, result.name(), result.info().kind, kind.command);
  }
  for (const ResultView* result : input.results) {
    for (const ResultArray& array : result->arrays()) {
      if (array.name.starts_with("rows/") && array.shape.count() == 0)
        throw ConfigError("figure {}: {} has no rows", kind.name, result->name());
    }
  }
  check_options(kind, input.options);
  plot::Figure figure =
      input.options.panels.empty() ? kind.make(input) : figures::panels_by(kind, input);
  figure.name = kind.name;
  if (!input.options.title.empty()) figure.title = input.options.title;
  for (const ResultView* result : input.results) {
    for (const std::string& sentence : {inputs_sentence(*result), formats_of(*result).sentence()}) {
      if (!sentence.empty() && std::ranges::find(figure.caption, sentence) == figure.caption.end())
        figure.caption.push_back(sentence);
    }
  }
  plot::check_figure(figure);
  return figure;
}

}  // namespace kvscope

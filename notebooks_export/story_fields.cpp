#include "notebooks_export/story_fields.hpp"

#include <algorithm>

#include "core/base/suggest.hpp"
#include "core/selectors/candidates.hpp"

namespace kvscope::story_fields {

namespace {

namespace fs = std::filesystem;
using StoryJson = nlohmann::json;

/// Two whole numbers.
std::optional<std::pair<Index, Index>> pair_in(const JsonObject& object, const std::string& field,
                                               const char* expected) {
  const StoryJson* value = object.find(field);
  if (value == nullptr) return std::nullopt;
  const auto is_place = [](const StoryJson& number) {
    return number.is_number_integer() && number >= 0 && number <= kMostPosition;
  };
  if (!value->is_array() || value->size() != 2 || !is_place((*value)[0]) || !is_place((*value)[1]))
    object.refuse(field, expected);
  return std::pair((*value)[0].get<Index>(), (*value)[1].get<Index>());
}

TokenRange need_range(const JsonObject& object, const std::string& field) {
  object.require(field);
  return *range_in(object, field);
}

}  // namespace

void only(const JsonObject& object, std::initializer_list<const char*> known) {
  const std::vector<std::string> names(known.begin(), known.end());
  for (const auto& [field, value] : object.value().items()) {
    if (std::find(names.begin(), names.end(), field) != names.end()) continue;
    throw FormatError("{}: there is no such field; expected {}{}", object.name_of(quote(field)),
                      fmt::join(names, ", "), did_you_mean(field, names));
  }
}

std::string text_in(const JsonObject& object, const std::string& field, std::size_t most) {
  const std::string text = object.string_if(field).value_or("");
  if (text.size() <= most) return text;
  throw FormatError("{}: expected at most {} bytes, found {}; shorten it", object.name_of(field),
                    most, text.size());
}

void check_length(const JsonObject& object, const std::string& field, const StoryJson& list,
                  std::size_t most) {
  if (list.size() <= most) return;
  throw FormatError("{}: expected at most {} entries, found {}", object.name_of(field), most,
                    list.size());
}

std::optional<Index> position_in(const JsonObject& object, const std::string& field) {
  if (object.find(field) == nullptr) return std::nullopt;
  return object.integer(field, 0, kMostPosition);
}

std::optional<TokenRange> range_in(const JsonObject& object, const std::string& field) {
  constexpr const char* kRange =
      "the first and the last position, as [120, 127], not below 0 and in order";
  const auto ends = pair_in(object, field, kRange);
  if (!ends) return std::nullopt;
  if (ends->second < ends->first) object.refuse(field, kRange);
  return TokenRange{ends->first, ends->second + 1};
}

StoryMethod method_in(const JsonObject& object) {
  StoryMethod out;
  out.method = read_field(object, "method", [&] { return MethodSpec(object.string("method")); });
  const StoryJson* budget = object.find("budget");
  if (budget != nullptr && !budget->is_string() && !budget->is_number_integer())
    object.refuse("budget", "a number of tokens, or a text as \"ratio=0.1\"");
  if (budget != nullptr) {
    const std::string text =
        budget->is_string() ? budget->get<std::string>() : fmt::format("tokens={}", budget->dump());
    out.budget = read_field(object, "budget", [&] { return Budget::parse(text); });
    read_field(object, "budget", [&] {
      check_budget_kind(out.method.text(), out.method.caps(), *out.budget);
      return 0;
    });
  } else if (!out.method.caps().budgets.empty()) {
    throw FormatError("{}: {} needs one, as 256 or \"ratio=0.1\"", object.name_of("budget"),
                      out.method.text());
  }
  return out;
}

StoryMark mark_in(const JsonObject& object, const std::string& place) {
  StoryMark mark;
  const bool is_box = object.has("queries") || object.has("keys");
  const bool is_arrow = object.has("from") || object.has("to");
  if (is_box + is_arrow + object.has("words") != 1) {
    throw FormatError(
        "{}: expected one of a box (\"queries\" and \"keys\"), an arrow on the map (\"from\" and "
        "\"to\", each [query, key]) or \"words\" of the text",
        place);
  }
  mark.label = text_in(object, "label", kMostTitleBytes);
  if (is_box) {
    only(object, {"queries", "keys", "label"});
    mark.kind = StoryMark::Kind::box;
    mark.queries = need_range(object, "queries");
    mark.keys = need_range(object, "keys");
  } else if (is_arrow) {
    only(object, {"from", "to", "label"});
    mark.kind = StoryMark::Kind::arrow;
    for (const char* field : {"from", "to"}) {
      object.require(field);
      const auto pair = *pair_in(object, field, "a query and a key, as [2100, 40]");
      auto& end = std::string_view(field) == "from" ? mark.from : mark.to;
      end[0] = pair.first;
      end[1] = pair.second;
    }
  } else {
    only(object, {"words", "arrow", "label"});
    mark.kind = StoryMark::Kind::words;
    mark.words = need_range(object, "words");
    mark.at = range_in(object, "arrow");
  }
  return mark;
}

std::vector<StoryPanel> panels_in(const JsonObject& step) {
  constexpr const char* kPanels =
      "\"map\", \"text\", \"atlas\" or \"figure\", or a list of two of them";
  std::vector<StoryPanel> panels;
  const auto add = [&](const StoryJson& value) {
    const std::vector<std::string> names = {"map", "text", "atlas", "figure"};
    const auto at = value.is_string()
                        ? std::find(names.begin(), names.end(), value.get<std::string>())
                        : names.end();
    if (at == names.end()) step.refuse("panel", kPanels);
    const auto panel = static_cast<StoryPanel>(at - names.begin());
    if (std::find(panels.begin(), panels.end(), panel) != panels.end())
      step.refuse("panel", "each panel once");
    panels.push_back(panel);
  };
  const StoryJson& value = step.require("panel");
  if (!value.is_array()) {
    add(value);
    return panels;
  }
  if (value.empty() || value.size() > 2) step.refuse("panel", kPanels);
  for (const StoryJson& one : value) add(one);
  return panels;
}

StoryFigure figure_in(const JsonObject& object, const fs::path& folder) {
  only(object, {"kind", "results", "options"});
  StoryFigure figure;
  figure.kind = object.string("kind");
  read_field(object, "kind", [&] { return find_figure_kind(figure.kind).name; });
  each_entry(object, "results", kMostStoryResults,
             [&](const StoryJson& file, const std::string& place) {
               if (!file.is_string()) object.refuse("results", "a list of files");
               figure.results.push_back(folder / file.get<std::string>());
               if (file.get_ref<const std::string&>().empty())
                 throw FormatError("{}: a file without a name", object.name_of(place));
             });
  if (figure.results.empty()) object.refuse("results", "a list of files");
  if (!object.has("options")) return figure;
  const JsonObject options = object.object("options");
  std::vector<std::string> known;
  visit_fields(figure.options, [&](const Field& field, auto& value) {
    const std::string name = snake_case(field.name);
    known.push_back(name);
    if (!options.has(name)) return;
    read_field(options, name, [&] {
      parse_field(field, options.string(name), value);
      return 0;
    });
  });
  for (const auto& [field, value] : options.value().items()) {
    if (std::find(known.begin(), known.end(), field) != known.end()) continue;
    throw FormatError("{}: there is no such option; expected {}{}", options.name_of(quote(field)),
                      fmt::join(known, ", "), did_you_mean(field, known));
  }
  return figure;
}

}  // namespace kvscope::story_fields

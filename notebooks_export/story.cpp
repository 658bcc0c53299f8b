#include "notebooks_export/story.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/lists.hpp"
#include "core/base/suggest.hpp"
#include "core/base/whole_file.hpp"
#include "core/selectors/candidates.hpp"

namespace kvscope {

namespace {

namespace fs = std::filesystem;
using StoryJson = nlohmann::json;

constexpr std::int64_t kMostPosition = (std::int64_t{1} << 31) - 1;
constexpr std::int64_t kStoryVersion = 1;

/// Refuses fields that stories do not have: a word spelled wrongly would be passed over in silence.
void only(const JsonObject& object, std::initializer_list<const char*> known) {
  const std::vector<std::string> names(known.begin(), known.end());
  for (const auto& [field, value] : object.value().items()) {
    if (std::find(names.begin(), names.end(), field) != names.end()) continue;
    throw FormatError(fmt::format("{}: there is no such field; expected {}{}",
                                  object.name_of(quote(field)), fmt::join(names, ", "),
                                  did_you_mean(field, names)));
  }
}

std::string text_in(const JsonObject& object, const std::string& field, std::size_t most) {
  const std::string text = object.string_if(field).value_or("");
  if (text.size() <= most) return text;
  throw FormatError(fmt::format("{}: expected at most {} bytes, found {}; shorten it",
                                object.name_of(field), most, text.size()));
}

void check_length(const JsonObject& object, const std::string& field, const StoryJson& list,
                  std::size_t most) {
  if (list.size() <= most) return;
  throw FormatError(fmt::format("{}: expected at most {} entries, found {}", object.name_of(field),
                                most, list.size()));
}

/// The entries of a list, each with its place in it ("steps[2].").
template <class Visit>
void each_entry(const JsonObject& object, const std::string& field, std::size_t most,
                Visit&& visit) {
  if (!object.has(field)) return;
  const StoryJson& list = object.list(field);
  check_length(object, field, list, most);
  for (std::size_t i = 0; i < list.size(); ++i) visit(list[i], fmt::format("{}[{}]", field, i));
}

std::optional<Index> position_in(const JsonObject& object, const std::string& field) {
  if (object.find(field) == nullptr) return std::nullopt;
  return object.integer(field, 0, kMostPosition);
}

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

std::optional<TokenRange> range_in(const JsonObject& object, const std::string& field) {
  constexpr const char* kRange =
      "the first and the last position, as [120, 127], not below 0 and in order";
  const auto ends = pair_in(object, field, kRange);
  if (!ends) return std::nullopt;
  if (ends->second < ends->first) object.refuse(field, kRange);
  return TokenRange{ends->first, ends->second + 1};
}

TokenRange need_range(const JsonObject& object, const std::string& field) {
  object.require(field);
  return *range_in(object, field);
}

/// What `read` makes of a field; its complaint gets the field's name.
template <class Read>
auto read_field(const JsonObject& object, const std::string& field, Read&& read) {
  try {
    return read();
  } catch (const ConfigError& e) {
    throw FormatError(fmt::format("{}: {}", object.name_of(field), e.what()));
  }
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
    throw FormatError(fmt::format("{}: {} needs one, as 256 or \"ratio=0.1\"",
                                  object.name_of("budget"), out.method.text()));
  }
  return out;
}

StoryMark mark_in(const JsonObject& object, const std::string& place) {
  StoryMark mark;
  const bool is_box = object.has("queries") || object.has("keys");
  const bool is_arrow = object.has("from") || object.has("to");
  if (is_box + is_arrow + object.has("words") != 1) {
    throw FormatError(fmt::format(
        "{}: expected one of a box (\"queries\" and \"keys\"), an arrow on the map (\"from\" and "
        "\"to\", each [query, key]) or \"words\" of the text",
        place));
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
                 throw FormatError(fmt::format("{}: a file without a name", object.name_of(place)));
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
    throw FormatError(fmt::format("{}: there is no such option; expected {}{}",
                                  options.name_of(quote(field)), fmt::join(known, ", "),
                                  did_you_mean(field, known)));
  }
  return figure;
}

/// A list of layers or heads, as "0,4-7".
std::vector<Index> indices_in(const JsonObject& object, const std::string& field) {
  const auto text = object.string_if(field);
  if (!text) return {};
  return read_field(object, field, [&] { return parse_index_list(*text, field); });
}

/// What a view lacks or has too much of for its panels.
void check_step(const JsonObject& object, const StoryStep& step) {
  const bool has_head = step.shows(StoryPanel::map) || step.shows(StoryPanel::text);
  const bool has_trace = has_head || step.shows(StoryPanel::atlas);
  if (has_trace && step.view.trace.empty()) {
    throw FormatError(fmt::format(
        "{}: expected the trace that the step shows, here or for the whole story, found none",
        object.name_of("trace")));
  }
  const auto needs = [&](const char* field, bool is_there) {
    if (!is_there)
      throw FormatError(fmt::format("{}: a map or a text shows one head: expected its number",
                                    object.name_of(field)));
  };
  if (has_head) {
    needs("layer", step.view.layer.has_value());
    needs("head", step.view.head.has_value());
  }
  const auto refuse = [&](const char* field, bool is_there, const char* why) {
    if (is_there) throw FormatError(fmt::format("{}: {}", object.name_of(field), why));
  };
  refuse("panel", has_head && step.shows(StoryPanel::atlas),
         "an atlas has a map of its own; show it alone or beside a figure");
  refuse("methods", !has_head && !step.view.methods.empty(),
         "only maps and texts show what methods keep; leave it out");
  refuse("layers",
         !step.shows(StoryPanel::atlas) &&
             (!step.view.atlas.layers.empty() || !step.view.atlas.q_heads.empty()),
         "layers and heads are an atlas' choice; a map has \"layer\" and \"head\"");
  refuse("figure", step.figure.has_value() != step.shows(StoryPanel::figure),
         "panel \"figure\" and the field \"figure\" go together");
  refuse("key", step.view.key && !step.view.query, "a held key needs its \"query\"");
}

StoryStep step_in(const JsonObject& object, const std::string& path, const StoryView& common,
                  const fs::path& folder) {
  only(object,
       {"title", "note", "panel", "trace", "draft", "layer", "head", "layers", "heads", "queries",
        "keys", "query", "key", "methods", "chunk", "dense_layers", "marks", "figure"});
  StoryStep step;
  step.view = common;
  object.require("title");
  step.title = text_in(object, "title", kMostTitleBytes);
  step.note = text_in(object, "note", kMostNoteBytes);
  step.panels = panels_in(object);
  StoryView& view = step.view;
  if (const auto trace = object.string_if("trace")) view.trace = folder / *trace;
  if (const auto draft = object.string_if("draft")) view.draft = folder / *draft;
  view.layer = position_in(object, "layer");
  view.head = position_in(object, "head");
  view.atlas.layers = indices_in(object, "layers");
  view.atlas.q_heads = indices_in(object, "heads");
  view.queries = range_in(object, "queries");
  view.keys = range_in(object, "keys");
  view.query = position_in(object, "query");
  view.key = position_in(object, "key");
  view.chunk = object.integer_or("chunk", 1, kMostPosition, view.chunk);
  if (object.has("dense_layers")) view.dense_layers = position_in(object, "dense_layers");
  each_entry(object, "methods", kMostStoryMethods,
             [&](const StoryJson& one, const std::string& place) {
               const JsonObject method(one, object.where(), path + place + ".");
               only(method, {"method", "budget"});
               view.methods.push_back(method_in(method));
             });
  each_entry(object, "marks", kMostStoryMarks, [&](const StoryJson& one, const std::string& place) {
    const JsonObject mark(one, object.where(), path + place + ".");
    step.marks.push_back(mark_in(mark, object.name_of(place)));
  });
  if (object.has("figure")) step.figure = figure_in(object.object("figure"), folder);
  check_step(object, step);
  return step;
}

}  // namespace

std::string StoryMethod::words() const {
  return budget ? fmt::format("{} at {}", method.text(), budget->to_string()) : method.text();
}

bool StoryStep::shows(StoryPanel panel) const {
  return std::find(panels.begin(), panels.end(), panel) != panels.end();
}

Story story_from_text(std::string_view text, const std::string& where, const fs::path& folder) {
  StoryJson json = parse_json(text, where);
  // a view that the window exported holds a session
  const bool is_view = json.is_object() && json.contains("format") && json.contains("session");
  if (is_view) json = StoryJson(json["session"]);
  if (json.is_object() && json.contains("kind") && json["kind"] == "kvscope-session")
    json = StoryJson(story_of_session(json, where));
  const JsonObject object(json, where);
  if (object.string_if("kind").value_or("") != "kvscope-story") {
    throw FormatError(fmt::format(
        "{}: no story: expected \"kind\": \"kvscope-story\", or a session that kvscope-explorer "
        "saved; notebooks_export/stories/README.md explains the fields",
        where));
  }
  const std::int64_t version = object.integer("version", 1, kMostPosition);
  if (version > kStoryVersion) {
    throw FormatError(
        fmt::format("{}: a story of version {}, known is {}: a newer kvscope reads it", where,
                    version, kStoryVersion));
  }
  only(object,
       {"kind", "version", "title", "author", "trace", "draft", "chunk", "dense_layers", "steps"});
  Story story;
  story.title = text_in(object, "title", kMostTitleBytes);
  story.author = text_in(object, "author", kMostTitleBytes);
  StoryView common;
  if (const auto trace = object.string_if("trace")) common.trace = folder / *trace;
  if (const auto draft = object.string_if("draft")) common.draft = folder / *draft;
  common.chunk = object.integer_or("chunk", 1, kMostPosition, common.chunk);
  common.dense_layers = position_in(object, "dense_layers");
  object.list("steps");
  each_entry(object, "steps", kMostStorySteps, [&](const StoryJson& one, const std::string& place) {
    const std::string path = place + ".";
    story.steps.push_back(step_in(JsonObject(one, where, path), path, common, folder));
  });
  if (story.steps.empty()) object.refuse("steps", "at least one step");
  return story;
}

Story read_story(const fs::path& file) {
  std::error_code error;
  const fs::path folder = file == "-" ? fs::path(".") : fs::absolute(file, error).parent_path();
  return story_from_text(read_whole_file(file, kMostStoryBytes), file.string(), folder);
}

}  // namespace kvscope

#include "notebooks_export/story.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/lists.hpp"
#include "core/base/whole_file.hpp"
#include "notebooks_export/story_fields.hpp"

namespace kvscope {

namespace {

using story_fields::each_entry;
using story_fields::kMostPosition;
using story_fields::only;
using story_fields::position_in;
using story_fields::read_field;
using story_fields::text_in;
namespace fs = std::filesystem;
using StoryJson = nlohmann::json;

constexpr std::int64_t kStoryVersion = 1;

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
    throw FormatError(
        "{}: expected the trace that the step shows, here or for the whole story, found none",
        object.name_of("trace"));
  }
  const auto needs = [&](const char* field, bool is_there) {
    if (!is_there)
      throw FormatError("{}: a map or a text shows one head: expected its number",
                        object.name_of(field));
  };
  if (has_head) {
    needs("layer", step.view.layer.has_value());
    needs("head", step.view.head.has_value());
  }
  const auto refuse = [&](const char* field, bool is_there, const char* why) {
    if (is_there) throw FormatError("{}: {}", object.name_of(field), why);
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
  step.panels = story_fields::panels_in(object);
  StoryView& view = step.view;
  if (const auto trace = object.string_if("trace")) view.trace = folder / *trace;
  if (const auto draft = object.string_if("draft")) view.draft = folder / *draft;
  view.layer = position_in(object, "layer");
  view.head = position_in(object, "head");
  view.atlas.layers = indices_in(object, "layers");
  view.atlas.q_heads = indices_in(object, "heads");
  view.queries = story_fields::range_in(object, "queries");
  view.keys = story_fields::range_in(object, "keys");
  view.query = position_in(object, "query");
  view.key = position_in(object, "key");
  view.chunk = object.integer_or("chunk", 1, kMostPosition, view.chunk);
  if (object.has("dense_layers")) view.dense_layers = position_in(object, "dense_layers");
  each_entry(object, "methods", kMostStoryMethods,
             [&](const StoryJson& one, const std::string& place) {
               const JsonObject method(one, object.where(), path + place + ".");
               only(method, {"method", "budget"});
               view.methods.push_back(story_fields::method_in(method));
             });
  each_entry(object, "marks", kMostStoryMarks, [&](const StoryJson& one, const std::string& place) {
    const JsonObject mark(one, object.where(), path + place + ".");
    step.marks.push_back(story_fields::mark_in(mark, object.name_of(place)));
  });
  if (object.has("figure")) step.figure = story_fields::figure_in(object.object("figure"), folder);
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
    throw FormatError(
        "{}: no story: expected \"kind\": \"kvscope-story\", or a session that kvscope-explorer "
        "saved; notebooks_export/stories/README.md explains the fields",
        where);
  }
  const std::int64_t version = object.integer("version", 1, kMostPosition);
  if (version > kStoryVersion) {
    throw FormatError("{}: a story of version {}, known is {}: a newer kvscope reads it", where,
                      version, kStoryVersion);
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

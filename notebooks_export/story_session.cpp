// The bookmarks of a saved session as a story.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/utf8.hpp"
#include "notebooks_export/story.hpp"

namespace kvscope {

namespace {

using SavedJson = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr std::int64_t kMost = (std::int64_t{1} << 31) - 1;

/// At most as long as a title may be, cut between characters.
std::string as_title(std::string text) {
  if (const std::size_t end = text.find('\n'); end != std::string::npos) text.resize(end);
  if (text.size() <= kMostTitleBytes) return text;
  std::size_t end = kMostTitleBytes - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80U) --end;
  return text.substr(0, end) + "...";
}

/// The path of the trace that a bookmark names, by its uuid or, of a recording that had none yet,
/// by the name of its file.
std::string trace_of(const JsonObject& session, const JsonObject& mark) {
  const std::string uuid = mark.string_if("trace").value_or("");
  const std::string name = mark.string_if("name").value_or("");
  for (const SavedJson& one : session.list("traces")) {
    const JsonObject trace(one, session.where(), "traces.");
    const std::string path = trace.string_if("path").value_or("");
    const bool is_it = uuid.empty() ? std::filesystem::path(path).filename().string() == name
                                    : trace.string_if("uuid").value_or("") == uuid;
    if (is_it && !path.empty()) return path;
  }
  throw FormatError(
      "{}: the bookmark is of {}, which is not among the session's traces: open it in the window "
      "and save the session again, or remove the bookmark",
      mark.name_of("trace"), quote(name.empty() ? uuid : name));
}

/// The bookmark's method with the sliders of the session, as the window runs it; null if the
/// bookmark names none.
OrderedJson method_of(const JsonObject& mark, const JsonObject* sliders) {
  const std::string text = mark.string_if("selector").value_or("");
  if (text.empty()) return nullptr;
  MethodSpec method;
  try {
    method = MethodSpec(text);
    if (method.is_plain() && sliders != nullptr) {
      for (const char* option : {"n-queries", "page-size"}) {
        const std::string field = snake_case(option);
        if (sliders->find(field) != nullptr) method.fill(option, sliders->integer(field, 1, kMost));
      }
    }
  } catch (const ConfigError& e) {
    throw FormatError("{}: {}", mark.name_of("selector"), e.what());
  }
  OrderedJson out = {{"method", method.text()}};
  const auto& budgets = method.caps().budgets;
  const auto takes = [&](Budget::Kind kind) {
    return std::find(budgets.begin(), budgets.end(), kind) != budgets.end();
  };
  if (takes(Budget::Kind::tokens)) {
    out["budget"] = mark.integer_or("budget", 0, kMost, 256);
    if (out["budget"] == 0) out["budget"] = 256;
  } else if (takes(Budget::Kind::mass)) {
    const double nucleus =
        sliders != nullptr ? sliders->number_or("nucleus", 0.01, 1.0, 0.95) : 0.95;
    out["budget"] = fmt::format("p={}", nucleus);
  }
  return out;
}

}  // namespace

OrderedJson story_of_session(const SavedJson& session, const std::string& where) {
  const JsonObject object(session, where);
  OrderedJson story = {{"kind", "kvscope-story"}, {"version", 1}};
  const auto sliders = object.find("parameters") != nullptr
                           ? std::optional(object.object("parameters"))
                           : std::nullopt;
  story["title"] = fmt::format("Bookmarks of {}", std::filesystem::path(where).stem().string());
  story["title"] = as_title(story["title"].get<std::string>());
  if (sliders) {
    story["chunk"] = sliders->integer_or("chunk", 1, kMost, 128);
    story["dense_layers"] = sliders->integer_or("dense_layers", 0, kMost, 0);
  }
  story["steps"] = OrderedJson::array();
  const SavedJson none = SavedJson::array();
  const SavedJson& marks = object.find("bookmarks") != nullptr ? object.list("bookmarks") : none;
  if (marks.empty()) {
    throw FormatError(
        "{}: the session has no bookmarks, and a story is made of them: in the window, select a "
        "query and a key, press Ctrl+B, and save the session again",
        where);
  }
  for (std::size_t i = 0; i < marks.size(); ++i) {
    const JsonObject mark(marks[i], where, fmt::format("bookmarks[{}].", i));
    const Index layer = mark.integer("layer", 0, kMost);
    const Index head = mark.integer("q_head", 0, kMost);
    const Index query = mark.integer("query", 0, kMost);
    const bool has_key = mark.find("key") != nullptr;
    const Index key = has_key ? mark.integer("key", 0, kMost) : 0;
    const std::string place = fmt::format("Layer {}, head {}, query {}{}", layer, head, query,
                                          has_key ? fmt::format(", key {}", key) : std::string());
    const std::string note = mark.string_if("note").value_or("");
    OrderedJson step = {{"title", note.empty() ? place : as_title(note)}};
    step["note"] = as_title(note) == note ? place + "." : note;
    step["panel"] = {"map", "text"};
    step["trace"] = trace_of(object, mark);
    step["layer"] = layer;
    step["head"] = head;
    step["query"] = query;
    if (has_key) step["key"] = key;
    if (const OrderedJson method = method_of(mark, sliders ? &*sliders : nullptr);
        !method.is_null())
      step["methods"] = {method};
    if (has_key) {
      step["marks"] =
          OrderedJson::array({{{"queries", {query, query}}, {"keys", {key, key}}, {"label", place}},
                              {{"words", {query, query}}, {"arrow", {key, key}}}});
    }
    story["steps"].push_back(std::move(step));
  }
  return story;
}

}  // namespace kvscope

// A session as JSON: files by uuid and path, what is selected, the sliders.

#include "core/base/error.hpp"
#include "core/base/fields_json.hpp"
#include "core/base/json.hpp"
#include "gui/model/session/session.hpp"

namespace kvscope::gui {

namespace fs = std::filesystem;

namespace {

constexpr int kSessionVersion = 1;

std::string relative_to(const fs::path& path, const fs::path& base) {
  std::error_code error;
  const fs::path near = fs::relative(path, base, error);
  // Far apart, the absolute path says more.
  const bool is_far = error || near.empty() || near.string().starts_with("../../..");
  return (is_far ? path : near).generic_string();
}

Index number_of(const Json& json, const char* key, Index otherwise) {
  return json.is_object() && json.contains(key) && json[key].is_number_integer()
             ? json[key].get<Index>()
             : otherwise;
}

}  // namespace

Json Session::to_json(const fs::path& base) const {
  Json json;
  json["kind"] = "kvscope-session";
  json["version"] = kSessionVersion;
  json["traces"] = Json::array();
  for (const auto& trace : documents_) {
    json["traces"].push_back(
        {{"uuid", trace->info().uuid}, {"path", relative_to(trace->path(), base)}});
  }
  json["results"] = Json::array();
  for (const auto& path : result_paths_) json["results"].push_back(relative_to(path, base));
  const Selection& s = state_.selection;
  json["selection"] = {{"trace", s.trace},
                       {"second", or_null(second_)},
                       {"layer", s.layer},
                       {"q_head", s.q_head},
                       {"query", s.query},
                       {"key", or_null(s.key)},
                       {"selector", s.selector.text()},
                       {"other", s.other.text()}};
  json["parameters"] = fields_to_json(state_.parameters);
  json["ticked"] = ticked_;
  json["bookmarks"] = kvscope::gui::to_json(bookmarks_);
  return json;
}

void Session::apply(const Json& json, const fs::path& base) {
  if (!json.is_object() || text_at(json, "kind") != "kvscope-session")
    throw ConfigError("not a session of kvscope-explorer: expected \"kind\": \"kvscope-session\"");
  if (number_of(json, "version", 0) > kSessionVersion) {
    throw ConfigError("the session was saved by a newer kvscope-explorer (version {}, known is {})",
                      number_of(json, "version", 0), kSessionVersion);
  }
  Snapshot wanted = state_;
  const Json selection = json.contains("selection") ? json["selection"] : Json::object();
  Selection& s = wanted.selection;
  s.layer = number_of(selection, "layer", s.layer);
  s.q_head = number_of(selection, "q_head", s.q_head);
  s.query = number_of(selection, "query", s.query);
  s.key.reset();
  if (const Index key = number_of(selection, "key", -1); key >= 0) s.key = key;
  const auto method = [&](const char* key, MethodSpec& target) {
    const std::string name = text_at(selection, key);
    if (!name.empty()) target = name;  // throws for what there is not
  };
  method("selector", s.selector);
  method("other", s.other);
  if (json.contains("parameters")) fields_from_json(json["parameters"], wanted.parameters);
  check_fields(wanted.parameters);
  if (json.contains("ticked") && json["ticked"].is_array()) {
    std::vector<std::string> ticked;
    for (const Json& name : json["ticked"]) {
      if (!name.is_string()) continue;
      ticked.push_back(MethodSpec(name.get<std::string>()).text());
    }
    ticked_ = std::move(ticked);
  }
  if (json.contains("bookmarks")) bookmarks_ = bookmarks_from_json(json["bookmarks"]);

  const Json traces =
      json.contains("traces") && json["traces"].is_array() ? json["traces"] : Json::array();
  if (!documents_.empty() || is_opening() || traces.empty()) {
    // Applied to other files: the selection goes as far as they have it.
    s.trace = state_.selection.trace;
    change("session", [&](Snapshot& state) { state = wanted; });
    if (documents_.empty()) {
      wanted_ = wanted;
      wanted_trace_ = {};
    }
    return;
  }
  const auto full = [&](const std::string& path) {
    return fs::path(path).is_absolute() ? fs::path(path) : base / path;
  };
  const auto named_at = [&](Index index) -> Named {
    if (index < 0 || index >= static_cast<Index>(traces.size())) return {};
    const Json& trace = traces[static_cast<std::size_t>(index)];
    const std::string path = text_at(trace, "path");
    return {text_at(trace, "uuid"), path.empty() ? fs::path() : file_behind(full(path))};
  };
  wanted_ = wanted;
  wanted_trace_ = named_at(number_of(selection, "trace", 0));
  wanted_second_ = named_at(number_of(selection, "second", -1));
  finds_second_ = !selection.contains("second");
  state_ = wanted;
  state_.selection.trace = 0;
  const auto open_named = [&](const std::string& path) {
    if (!path.empty()) open(full(path));
  };
  for (const Json& trace : traces) open_named(text_at(trace, "path"));
  if (json.contains("results") && json["results"].is_array()) {
    for (const Json& path : json["results"]) {
      if (path.is_string()) open_named(path.get<std::string>());
    }
  }
  ++revision_;
}

}  // namespace kvscope::gui

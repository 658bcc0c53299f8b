#include "gui/model/session/arrangement.hpp"

#include <algorithm>
#include <cmath>

#include "core/base/error.hpp"
#include "core/base/json.hpp"

namespace kvscope::gui {

namespace {

constexpr int kDeepest = 8;
constexpr double kLeastShare = 0.05;

float first_length(double share, float length, float bar, float least) {
  const float room = std::max(0.0f, length - bar);
  const float wanted = static_cast<float>(share) * room;
  if (room <= 2 * least) return room / 2;
  return std::round(std::clamp(wanted, least, room - least));
}

void arrange_into(Place& place, Area area, float bar, float least, Arranged& out) {
  if (place.kind == Place::Kind::panel) {
    out.panels.push_back({&place, area});
    return;
  }
  Area first = area;
  Area second = area;
  Area middle = area;
  if (place.kind == Place::Kind::columns) {
    first.w = first_length(place.share, area.w, bar, least);
    middle.x = area.x + first.w;
    middle.w = bar;
    second.x = middle.x + bar;
    second.w = std::max(0.0f, area.x + area.w - second.x);
  } else {
    first.h = first_length(place.share, area.h, bar, least);
    middle.y = area.y + first.h;
    middle.h = bar;
    second.y = middle.y + bar;
    second.h = std::max(0.0f, area.y + area.h - second.y);
  }
  out.splitters.push_back({&place, middle, area});
  arrange_into(place.parts[0], first, bar, least, out);
  arrange_into(place.parts[1], second, bar, least, out);
}

Place parse(const Json& json, int depth) {
  if (depth > kDeepest) throw ConfigError("layout: more than 8 splits inside each other");
  if (json.is_string()) return panel_place(json.get<std::string>());
  const bool is_split = json.is_object() && json.contains("split") && json["split"].is_string() &&
                        json.contains("parts") && json["parts"].is_array() &&
                        json["parts"].size() == 2;
  if (!is_split)
    throw ConfigError("layout: expected a panel's name, or {\"split\", \"share\", \"parts\": [2]}");
  const auto kind = json["split"].get<std::string>();
  if (kind != "columns" && kind != "rows")
    throw ConfigError("layout: split: expected columns or rows, found \"" + kind + "\"");
  const double share =
      json.contains("share") && json["share"].is_number() ? json["share"].get<double>() : 0.5;
  Place place{.kind = kind == "columns" ? Place::Kind::columns : Place::Kind::rows,
              .share = std::clamp(share, kLeastShare, 1.0 - kLeastShare)};
  for (const Json& part : json["parts"]) place.parts.push_back(parse(part, depth + 1));
  return place;
}

}  // namespace

Place panel_place(std::string name) {
  Place place;
  place.panel = std::move(name);
  return place;
}

Place columns(double share, Place left, Place right) {
  return {Place::Kind::columns, "", share, {std::move(left), std::move(right)}};
}

Place rows(double share, Place above, Place below) {
  return {Place::Kind::rows, "", share, {std::move(above), std::move(below)}};
}

std::vector<Layout> standard_layouts() {
  const auto panel = [](const char* name) { return panel_place(name); };
  const auto over_text = [&](Place above) { return rows(0.80, std::move(above), panel("tokens")); };
  return {
      {"overview",
       "One head: its attention map, which queries stand out, and the geometry behind it",
       over_text(columns(0.58, panel("attention-map"),
                         rows(0.5, panel("query-selection"), panel("geometry"))))},
      {"budget", "What methods keep: recall against budget, and where it is kept",
       over_text(columns(0.55, panel("recall"), panel("coverage")))},
      {"bounds", "Bounds against the truth: Quest's pages and Theorem B.1",
       over_text(columns(0.5, panel("quest-bounds"), panel("theorem-b1")))},
      {"draft", "Two models or two methods: the layer map, and a comparison",
       over_text(columns(0.42, panel("layer-map"), panel("compare")))},
      {"results", "Tables of sweeps and simulations, and their figures", panel("results")},
      {"why", "One query: its attention map, and why a key was kept or dropped",
       over_text(columns(0.42, panel("attention-map"), panel("why")))},
      {"reading", "The text as the page: what a method loses at every word, and why",
       columns(0.64, panel("tokens"), panel("why"))},
      {"atlas", "All heads at once, and the text that the chosen one reads",
       rows(0.55, panel("heads"), panel("tokens"))},
  };
}

std::vector<std::string> panels_in(const Place& place) {
  if (place.kind == Place::Kind::panel) return {place.panel};
  std::vector<std::string> names = panels_in(place.parts[0]);
  for (auto& name : panels_in(place.parts[1])) names.push_back(std::move(name));
  return names;
}

Json to_json(const Place& place) {
  if (place.kind == Place::Kind::panel) return place.panel;
  return {{"split", place.kind == Place::Kind::columns ? "columns" : "rows"},
          {"share", place.share},
          {"parts", Json::array({to_json(place.parts[0]), to_json(place.parts[1])})}};
}

Place place_from_json(const Json& json) {
  return parse(json, 0);
}

Arranged arrange(Place& root, Area area, float bar, float least) {
  Arranged out;
  arrange_into(root, area, bar, least, out);
  return out;
}

void drag_splitter(Splitter& splitter, float x, float y, float bar, float least) {
  const bool sideways = splitter.split->kind == Place::Kind::columns;
  const float length = sideways ? splitter.whole.w : splitter.whole.h;
  const float at = sideways ? x - splitter.whole.x : y - splitter.whole.y;
  const float room = length - bar;
  if (room <= 2 * least) return;
  splitter.split->share = static_cast<double>(std::clamp(at - bar / 2, least, room - least) / room);
}

}  // namespace kvscope::gui

// Where panels stand: a tree of splits with panels as leaves, some well-made ones by name, all as
// JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace kvscope::gui {

/// A panel, or two parts side by side or one above the other.
struct Place {
  enum class Kind { panel, columns, rows };
  Kind kind = Kind::panel;
  std::string panel;         // Kind::panel: its name
  double share = 0.5;        // of the first part, in (0, 1)
  std::vector<Place> parts;  // two, or none for a panel

  bool operator==(const Place&) const = default;
};

Place panel_place(std::string name);
Place columns(double share, Place left, Place right);
Place rows(double share, Place above, Place below);

/// An arrangement that one key brings up.
struct Layout {
  std::string name;      // "overview"
  std::string sentence;  // what it is for
  Place root;
};

/// overview, budget, bounds, draft, results, why, reading, atlas.
std::vector<Layout> standard_layouts();

/// Names of the panels, from left to right and top to bottom.
std::vector<std::string> panels_in(const Place& place);

nlohmann::ordered_json to_json(const Place& place);
/// Throws ConfigError for what is no arrangement, or one deeper than 8 splits.
Place place_from_json(const nlohmann::ordered_json& json);

/// A rectangle in pixels.
struct Area {
  float x = 0.0f;
  float y = 0.0f;
  float w = 0.0f;
  float h = 0.0f;
  bool contains(float px, float py) const { return px >= x && px < x + w && py >= y && py < y + h; }
};

/// A panel of the arrangement at its place. `leaf` may be changed: it is the tree's.
struct PlacedPanel {
  Place* leaf = nullptr;
  Area area;
};

/// The bar between two parts.
struct Splitter {
  Place* split = nullptr;
  Area area;
  Area whole;  // of both parts
};

struct Arranged {
  std::vector<PlacedPanel> panels;
  std::vector<Splitter> splitters;
};

/// Divides the area; bars are `bar` pixels wide. A part is at least `least` pixels if there is room
/// for both.
Arranged arrange(Place& root, Area area, float bar, float least);

/// Moves a bar so that its middle lies at the pixel.
void drag_splitter(Splitter& splitter, float x, float y, float bar, float least);

}  // namespace kvscope::gui

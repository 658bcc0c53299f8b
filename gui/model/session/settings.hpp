// What the explorer remembers between its runs, in the user's configuration folder.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "analysis/plot/theme.hpp"
#include "core/base/fields.hpp"
#include "gui/model/session/arrangement.hpp"

namespace kvscope::gui {

/// What a trace is opened on: the head that does most, or the first one.
enum class Opening { interesting, first };

struct Settings {
  plot::Ground theme = option(theme, "theme", plot::Ground::light, "light or dark ground");
  double ui_scale =
      option(ui_scale, "ui-scale", 1.0, "size of letters and controls, times that of the screen",
             in(0.5, 4.0));  // on top of the screen's own scale
  Index cache_mib =
      option(cache_mib, "cache-mib", 1024, "MiB of computed values and slices kept in memory",
             in(64, 1 << 20));  // computed values and slices kept in memory
  bool show_sidebar =
      option(show_sidebar, "show-sidebar", true, "traces, selection and sliders at the left");
  std::vector<std::string> recent;            // files, the latest first
  std::map<std::string, Place> arrangements;  // layouts as the user left them, by name
  std::string last_layout =
      option(last_layout, "last-layout", "", "the layout shown at the start; empty: the atlas");
  Opening opening = option(
      opening, "opening", Opening::interesting,
      "the first trace opens on the head that retrieves most (or looks back farthest), or on "
      "the first head");
  bool tour_done = option(tour_done, "tour-done", false,
                          "the tour was seen, or left");  // it was seen to its end, or left

  /// Puts a file in front of the recent ones; the list stays short.
  void add_recent(const std::filesystem::path& file);
};

/// $XDG_CONFIG_HOME/kvscope/explorer.json, else ~/.config/...; KVSCOPE_CONFIG, if set, names the
/// folder instead. Empty if there is no home.
std::filesystem::path settings_file();

/// Where files are kept that can be made again, as the start page's "samples" and the clipboard's
/// "pictures": $XDG_CACHE_HOME/kvscope/..., else ~/.cache/...; below KVSCOPE_CONFIG if that is set.
/// Empty if there is no home.
std::filesystem::path cache_folder(std::string_view of);

/// Defaults for a missing file; throws FormatError or ConfigError for a damaged one.
Settings load_settings(const std::filesystem::path& file);

/// Written beside it and renamed, folders made. Throws IoError.
void save_settings(const Settings& settings, const std::filesystem::path& file);

}  // namespace kvscope::gui

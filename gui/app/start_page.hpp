// What is shown before anything is open: the demo's traces, recent files, how to begin.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "gui/model/settings.hpp"
#include "gui/panels/panel.hpp"

namespace kvscope::gui {

/// What was chosen on the page.
struct StartChoice {
  std::vector<std::filesystem::path> open;
  bool ask_for_file = false;
};

/// The traces that ./demo.sh left below this folder: the verifier's, then the draft's.
std::vector<std::filesystem::path> demo_traces(const std::filesystem::path& folder);

StartChoice draw_start_page(PanelContext& context, const Settings& settings);

}  // namespace kvscope::gui

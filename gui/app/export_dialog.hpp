// The dialog behind "Export what I see": formats, place and name; the drawing itself happens in the
// background.
#pragma once

#include <functional>
#include <string>

#include "gui/model/results/export.hpp"
#include "gui/panels/panel.hpp"

namespace kvscope::gui {

class ExportDialog {
 public:
  /// Opens the dialog for what the panel shows now. Files go to the folder chosen last, at first
  /// the current one. `session_of`: the session with paths relative to a folder; called when the
  /// folder is settled.
  void ask(
      const Panel& panel,
      const std::function<ExportRequest(const Panel&, const std::filesystem::path&)>& request_of,
      std::function<nlohmann::ordered_json(const std::filesystem::path&)> session_of);
  /// Draws it while it is open; `report` gets a sentence on what was written.
  void draw(PanelContext& context, const std::function<void(std::string)>& report);

 private:
  void choose_formats();
  void draw_page_button(PanelContext& context, const std::function<void(std::string)>& report);
  void start(Session& session, Existing existing, const std::function<void(std::string)>& report);

  ExportRequest request_;
  std::function<nlohmann::ordered_json(const std::filesystem::path&)> session_of_;
  std::string folder_;
  std::string problem_;
  bool should_open_ = false;
  bool replace_ = false;
};

}  // namespace kvscope::gui

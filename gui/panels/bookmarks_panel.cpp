// Bookmarks: places that somebody wants to come back to, with notes; saved with the session.
#include <fmt/format.h>
#include <imgui.h>
#include <imgui_stdlib.h>

#include <optional>

#include "core/base/csv_text.hpp"
#include "gui/panels/cell_table.hpp"
#include "gui/panels/panel.hpp"
#include "gui/panels/widgets.hpp"

namespace kvscope::gui {

namespace {

class BookmarksPanel final : public Panel {
 public:
  PanelInfo info() const override {
    return {"bookmarks", "Bookmarks",
            "Heads, queries and keys to come back to, with notes. Ctrl+B adds the selection; "
            "click a place to go there; Ctrl+PageDown and Ctrl+PageUp play them one after another. "
            "They are saved with the session, and exported as one HTML page."};
  }

  void controls(PanelContext& context) override {
    if (ImGui::Button("Add the selection")) context.session.add_bookmark("");
    landmark("add bookmark");
    if (context.session.bookmarks().empty()) return;
    ImGui::SameLine();
    context.requests.export_page |= ImGui::Button("Export page");
    landmark("page of bookmarks");
    help_tooltip(
        "Saves the session beside the trace and makes a page of its bookmarks and results that any "
        "browser opens: kvscope export --html, beside the window (Run).");
  }

  void draw(PanelContext& context) override {
    Session& session = context.session;
    bookmarks_ = session.bookmarks();
    if (bookmarks_.empty()) {
      empty_place(context, "No bookmarks yet",
                  "Select a head, a query and a key anywhere, and press Ctrl+B.");
      return;
    }
    constexpr ImGuiTableFlags kFlags = ImGuiTableFlags_RowBg | ImGuiTableFlags_BordersInnerH |
                                       ImGuiTableFlags_ScrollY | ImGuiTableFlags_SizingStretchProp;
    // In a narrow panel the tooltip of the place has the trace and the method.
    const bool is_narrow = ImGui::GetContentRegionAvail().x < context.look.px(560);
    const ImGuiTableColumnFlags second =
        is_narrow ? ImGuiTableColumnFlags_Disabled : ImGuiTableColumnFlags_None;
    const std::vector<CellColumn> columns = {
        {"place", "", 2.6f},
        {"trace", "", 1.2f, second},
        {"method", "", 1.4f, second},
        {"note", "", is_narrow ? 2.2f : 3.0f},
        {"", "", ImGui::GetFrameHeight(), ImGuiTableColumnFlags_WidthFixed}};
    if (!begin_cells("bookmarks", columns, kFlags)) return;
    std::optional<std::size_t> removed;
    for (std::size_t i = 0; i < bookmarks_.size(); ++i) {
      ImGui::PushID(static_cast<int>(i));
      if (draw_row(session, i)) removed = i;
      ImGui::PopID();
    }
    ImGui::EndTable();
    if (removed) session.remove_bookmark(*removed);
  }

  std::optional<std::string> csv() const override {
    if (bookmarks_.empty()) return std::nullopt;
    std::string csv = "trace,layer,q_head,query,key,selector,budget,note\n";
    for (const Bookmark& mark : bookmarks_) {
      csv += fmt::format("{},{},{},{},{},{},{},{}\n", csv_field(mark.name), mark.layer, mark.q_head,
                         mark.query, mark.key ? fmt::format("{}", *mark.key) : std::string(),
                         csv_field(mark.selector), mark.budget, csv_field(mark.note));
    }
    return csv;
  }

 private:
  /// True if it is to be removed.
  bool draw_row(Session& session, std::size_t i) {
    const Bookmark& mark = bookmarks_[i];
    ImGui::TableNextRow();
    ImGui::TableNextColumn();
    ImGui::AlignTextToFramePadding();
    if (ImGui::Selectable(mark.words().c_str())) session.go_to(i);
    landmark(fmt::format("bookmark {}", i));
    help_tooltip(
        fmt::format("Selects this head, query and key of {} again, with {} at a budget of {}.",
                    mark.name, mark.selector, mark.budget));
    cells({mark.name, fmt::format("{} at {}", mark.selector, mark.budget)});
    ImGui::TableNextColumn();
    std::string note = mark.note;
    ImGui::SetNextItemWidth(-1.0f);
    if (ImGui::InputText("##note", &note)) session.set_note(i, note);
    landmark(fmt::format("note {}", i));
    ImGui::TableNextColumn();
    const bool removes = ImGui::SmallButton("\u00d7");
    landmark(fmt::format("remove bookmark {}", i));
    help_tooltip("Removes this bookmark.");
    return removes;
  }

  std::vector<Bookmark> bookmarks_;  // of the last frame
};

}  // namespace

std::unique_ptr<Panel> make_bookmarks_panel() {
  return std::make_unique<BookmarksPanel>();
}

}  // namespace kvscope::gui

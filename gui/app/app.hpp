// The explorer without its window: session, panels, layouts, keyboard; draws one frame at a time.
//
// A Backend (gui/platform) begins a frame of Dear ImGui, App::frame draws it, the backend shows it.
// The same App runs in a window, without a display for screenshots, and in tests.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/sibling_program.hpp"
#include "gui/app/cells.hpp"
#include "gui/app/export_dialog.hpp"
#include "gui/app/file_dialog.hpp"
#include "gui/app/palette.hpp"
#include "gui/app/shortcuts.hpp"
#include "gui/app/sidebar.hpp"
#include "gui/app/start_page.hpp"
#include "gui/app/tour.hpp"
#include "gui/model/runs/run_queue.hpp"
#include "gui/model/session/methods.hpp"
#include "gui/model/session/session.hpp"
#include "gui/model/session/settings.hpp"
#include "gui/panels/panel.hpp"
#include "gui/panels/widgets.hpp"
#include "gui/render/look.hpp"

namespace kvscope::gui {

struct AppOptions {
  Settings settings;
  /// Where settings are kept; empty: nowhere (tests, screenshots).
  std::filesystem::path settings_file;
  bool opens_on_interest = false;  // the first trace opens on its strongest head, in the atlas
  int n_threads = 0;               // of background work; 0: all cores
  std::function<void()> wake;      // called from other threads: another frame is wanted
  std::string program = sibling_program("kvscope");  // what the window runs
};

class App {
 public:
  App(AppOptions options, FontAtlas& fonts, TextureStore& textures);
  ~App();
  App(const App&) = delete;
  App& operator=(const App&) = delete;

  /// Between the backend's begin and end of a frame. `screen_scale`: of the monitor.
  void frame(float screen_scale);

  Session& session() { return *session_; }
  JobRunner& jobs() { return *jobs_; }
  RunQueue& runs() { return *runs_; }
  const Settings& settings() const { return settings_; }
  /// What `change` does to the settings (the command line) holds until the user changes it, and is
  /// not remembered.
  void for_this_window(const std::function<void(Settings&)>& change);
  const Look& look() const { return look_; }

  /// A trace, a result or a saved session; of a study (.toml) or a text (.txt), the command that
  /// runs or records it. What is opened once the window shows is brought into view as soon as it is
  /// read.
  void open(const std::filesystem::path& file);
  /// Applies a saved session: files, selection, layout, panels' switches. Throws IoError,
  /// FormatError or ConfigError.
  void load_session(const std::filesystem::path& file);
  /// The same from what a file held; relative paths are relative to `base`.
  void apply_session(const nlohmann::ordered_json& json, const std::filesystem::path& base);
  void save_session(const std::filesystem::path& file);
  /// The same, but the session is not called after this file.
  void write_session(const std::filesystem::path& file) const;
  /// Has kvscope export make a page of what the window holds now.
  void export_page();
  /// The first trace opens on the head that is selected, as before any analysis.
  void keep_first_head() { opens_on_interest_ = false; }
  /// Throw ConfigError naming what there is.
  void show_layout(const std::string& name);
  void show_panel_alone(const std::string& name);
  std::vector<std::string> panel_names() const;
  Panel& panel(const std::string& name);
  /// Null if there is none of that name.
  Panel* find_panel(const std::string& name);
  /// The panel that keys and menus act on.
  Panel* focused_panel();
  /// The same, to take its picture or numbers away; null if they are not there or not whole, which
  /// is said.
  Panel* whole_panel();

  /// Where a panel was drawn in the last frame, header included; empty if it is not shown.
  std::optional<Area> area_of(const std::string& panel) const { return cells_.area_of(panel); }

  /// Quits, or asks first if bookmarks would be lost.
  void ask_quit();
  /// Bookmarks that no session file holds.
  std::size_t n_unsaved_bookmarks() const;
  bool wants_quit() const { return wants_quit_; }
  /// A frame soon, though nothing happened: something moves, or a delayed tooltip.
  bool wants_redraw() const { return wants_redraw_; }
  /// Looks after files that changed on disk; true if there is something new to draw, or a panel's
  /// time to look again has come. For the time between frames.
  bool has_news();
  /// Something is being opened or computed.
  bool is_busy() const;
  /// Nothing is open: the start page is shown.
  bool is_empty() const;
  /// What is selected and hovered, where panels stand, what is said and whether work is going on:
  /// for programs that watch this one.
  nlohmann::ordered_json state() const;
  /// What panels said was wrong in the last frame.
  const std::vector<std::string>& panel_errors() const { return panel_errors_; }
  /// What a panel shows, to be exported into a folder.
  ExportRequest export_of(const Panel& panel, const std::filesystem::path& folder) const;
  /// For the title bar.
  std::string title() const;

 private:
  void make_shortcuts();
  void update_look(float screen_scale);
  void draw_top_bar();
  void draw_banners();
  void draw_banner(std::size_t notice);
  void show_result(const ResultView& result);
  void bring_up_results();
  void release_closed();
  void take_runs();
  /// The form of a command, with these options filled in.
  void ask_command(const std::string& command, const CommandValues& values);
  void draw_tour();
  void choose_opening();
  std::optional<Area> place_of(const std::string& target) const;
  void draw_body();
  float draw_side_handle(ImVec2 at, float height);
  void draw_dialogs();
  void ask_open();
  void ask_save_session(bool then_quits = false);
  void note_session(const std::filesystem::path& file);
  void draw_quit_dialog();
  void ask_export();
  void flash(std::string words);
  void copy_csv();
  void copy_picture();
  std::vector<Action> actions();
  void add_method_actions(std::vector<Action>& all, const MethodLine& line);
  void bring_up(const std::string& name);
  bool stands_in_layout(const std::string& panel) const;
  void focus_next_panel(int by);
  bool takes_keyboard(std::string_view bar);
  void ask_bookmark();
  void draw_bookmark_dialog();
  void step_method(int by);
  void remember();
  PanelContext context();
  nlohmann::ordered_json session_json(const std::filesystem::path& base) const;

  Settings settings_;
  std::filesystem::path settings_file_;
  std::unique_ptr<Cache> cache_;
  std::unique_ptr<JobRunner> jobs_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<RunQueue> runs_;
  FontAtlas& fonts_;
  TextureStore& textures_;
  Look look_;
  Requests requests_;
  std::vector<std::unique_ptr<Panel>> panels_;
  std::vector<Layout> layouts_;
  Cells cells_;
  Place arrangement_;
  std::string layout_;
  std::vector<Shortcut> shortcuts_;
  FileDialog file_dialog_;
  ExportDialog export_dialog_;
  StartPage start_page_;
  Tour tour_;
  AsyncValue<TourFacts> tour_facts_;
  bool opens_on_interest_ = false;              // until it has, or somebody has selected something
  AsyncValue<HeadAtlas> opening_;               // a rough atlas, then the whole one
  std::shared_ptr<const HeadAtlas> opened_by_;  // which of them chose last
  std::optional<Selection> opened_on_;          // what it chose, or what was there before
  std::optional<AtlasChoice> opened_with_;      // the atlas's switches that it set
  std::optional<std::size_t> shown_step_;       // of the tour, whose layout is there
  bool selects_pair_ = false;                   // of the head that retrieves, once it is known
  std::size_t awaited_traces_ = 0;              // the tour begins once so many are open
  Palette palette_;
  std::string note_;  // of the bookmark that is being made
  bool asks_note_ = false;
  SidebarState side_;
  bool shows_help_ = false;
  bool shows_all_banners_ = false;
  bool has_drawn_ = false;            // a frame: files are opened by hand from now on
  bool popup_was_open_ = false;       // at the end of the last frame
  bool keyboard_was_inside_ = false;  // of a table, say; then too
  std::string keyboard_bar_;          // "side bar", "top bar": where Tab has come; empty: a panel
  bool bar_takes_keyboard_ = false;   // in the next frame
  bool shows_next_result_ = false;    // one that was opened by hand is on its way
  std::size_t n_results_ = 0;         // of the last frame
  std::size_t n_documents_ = 0;       // of the last frame
  std::vector<std::string> panel_errors_;   // of the last frame
  std::filesystem::path session_file_;      // opened or saved last; empty: none
  std::optional<FileStamp> session_stamp_;  // as it was then
  std::vector<Bookmark> saved_bookmarks_;   // that it holds
  bool asks_quit_ = false;
  bool wants_quit_ = false;
  bool wants_redraw_ = false;
  HoverLines hover_;                 // of the last frame
  Landmarks landmarks_;              // of the last frame
  std::uint64_t n_key_presses_ = 0;  // that frames have seen
  std::uint64_t n_letters_ = 0;      // that frames have seen
  std::uint64_t drawn_revision_ = 0;
  std::string flash_;  // what a key just did, in the status bar for a moment
  double flash_until_ = 0.0;
  std::set<std::filesystem::path> known_;  // open files that are among the recent ones
  bool unsaved_ = false;                   // settings that saved_ does not show
  nlohmann::ordered_json saved_;
  struct Lent {
    nlohmann::ordered_json here;  // in this window
    nlohmann::ordered_json kept;  // in the settings
  };
  std::map<std::string, Lent> lent_;  // fields that for_this_window changed
};

}  // namespace kvscope::gui

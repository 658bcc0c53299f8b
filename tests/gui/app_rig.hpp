// The whole explorer on a backend without a GPU, over real traces of the embedded model pair: what
// the tests of the app and of its panels press, click and look at.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "gui/app/app.hpp"
#include "support/temp_dir.hpp"
#include "tests/gui/platform/null_backend.hpp"

namespace kvscope::gui::test {

/// Records `n_tokens` of the embedded text and some decode steps with the embedded verifier or
/// draft; made once (tests/support/fixture.hpp).
std::filesystem::path embedded_trace(bool draft, Index n_tokens = 192, Index n_decode = 8);

/// An App with a NullBackend; frames are drawn by hand.
class Rig {
 public:
  /// Without other options: no settings, two threads, the program kvscope of the build.
  explicit Rig(ImVec2 size = {1600, 900}, AppOptions options = {});

  App& app() { return *app_; }
  Session& session() { return app_->session(); }
  NullBackend& backend() { return backend_; }

  void frame(int n = 1);
  /// Frames until nothing is computed or opened any more, then three to settle. Fails the test
  /// after the limit.
  void settle(std::chrono::seconds limit = std::chrono::minutes(1));
  void open(const std::filesystem::path& file);
  /// Opens the embedded verifier's trace and, if asked, the draft's, and settles.
  void open_pair(bool with_draft = false);
  void tap(int key, bool ctrl = false, bool shift = false);
  void click(ImVec2 at, int button = 0);
  void click(float x, float y) { click({x, y}); }
  /// Moves the mouse there.
  void hover(ImVec2 at);
  /// At a place of a panel: 0, 0 its top left, 1, 1 its bottom right corner.
  void click_panel(const std::string& panel, float x, float y);
  void hover_panel(const std::string& panel, float x, float y);
  /// Panel::place, which has to be there: where the point (x, y) of its figure is drawn.
  ImVec2 place(const std::string& panel, double x, double y, std::size_t figure_panel = 0);
  Area area(const std::string& panel);
  /// Where something of that name is: of a panel's landmarks, or of all in the window.
  std::optional<ImVec2> find_mark(const std::string& name, const std::string& panel = "");
  /// The same of what has to be there.
  ImVec2 mark(const std::string& name, const std::string& panel = "");

 private:
  NullBackend backend_;
  std::unique_ptr<App> app_;
};

}  // namespace kvscope::gui::test

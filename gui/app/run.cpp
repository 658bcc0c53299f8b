#include "gui/app/run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "core/base/error.hpp"
#include "core/base/new_file.hpp"
#include "gui/app/app.hpp"
#include "gui/platform/offscreen.hpp"
#include "gui/platform/window.hpp"

namespace kvscope::gui {

namespace fs = std::filesystem;

namespace {

/// What the command line says, once the App is there.
void prepare(App& app, const CommandLine& line) {
  for (const auto& file : line.files) app.open(file);
  if (line.session) app.load_session(*line.session);
  if (line.layout) app.show_layout(*line.layout);
  if (line.panel) app.show_panel_alone(*line.panel);
}

/// Once the trace is open: layers and heads are known only then.
bool select_given(App& app, const CommandLine& line) {
  if (!app.session().document()) return false;
  app.session().select("command line", [&](Selection& s) {
    if (line.layer) s.layer = *line.layer;
    if (line.head) s.q_head = *line.head;
    if (line.query) s.query = *line.query;
  });
  return true;
}

/// Keeps the state file up to date, whole at every moment.
class StateFile {
 public:
  explicit StateFile(const std::optional<fs::path>& file) : file_(file) {}
  void update(const App& app) {
    if (!file_) return;
    std::string text = app.state().dump(1);
    if (text == last_) return;
    // After every action: not worth waiting for the device.
    write_new_file(*file_, text + "\n", /*overwrite=*/true, Sync::no);
    last_ = std::move(text);
  }

 private:
  std::optional<fs::path> file_;
  std::string last_;
};

Settings settings_for(const CommandLine& line, std::string& problem) {
  Settings settings;
  try {
    if (!line.screenshot) settings = load_settings(settings_file());
  } catch (const Error& e) {
    problem = e.what();
  }
  if (line.theme) settings.theme = *line.theme;
  if (line.scale) settings.ui_scale = *line.scale;
  return settings;
}

int take_screenshot(const CommandLine& line) {
  using Clock = std::chrono::steady_clock;
  Offscreen backend({static_cast<float>(line.width), static_cast<float>(line.height)});
  std::string problem;
  AppOptions options;
  options.settings = settings_for(line, problem);
  options.n_threads = line.n_threads;
  App app(std::move(options), backend.fonts(), backend.texture_store());
  prepare(app, line);
  const auto end = Clock::now() + std::chrono::duration<double>(line.timeout);
  bool selected = false;
  // Some frames settle the layout; then as many as the background work needs.
  constexpr int kSettle = 4;
  for (int calm = 0; calm < kSettle;) {
    backend.set_ground(app.look().surface);
    backend.frame([&] { app.frame(1.0f); });
    if (!selected) selected = select_given(app, line);
    if (app.is_busy()) {
      calm = 0;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    } else {
      ++calm;
    }
    if (Clock::now() > end) {
      throw IoError(fmt::format("the picture was not finished after {} s; give more with --timeout",
                                line.timeout));
    }
  }
  // What went wrong while opening ends the program: nobody would read it in the picture.
  for (const Notice& notice : app.session().notices()) {
    if (notice.is_error) throw FormatError(notice.sentence);
  }
  StateFile(line.state).update(app);
  write_new_file(*line.screenshot, backend.png(), /*overwrite=*/true);
  return 0;
}

int show_window(const CommandLine& line) {
  WindowOptions window;
  window.width = line.width;
  window.height = line.height;
  Window backend(window);
  std::string problem;
  AppOptions options;
  options.settings = settings_for(line, problem);
  options.settings_file = problem.empty() ? settings_file() : fs::path();
  options.n_threads = line.n_threads;
  options.wake = [&backend] { backend.wake(); };
  App app(std::move(options), backend.fonts(), backend.texture_store());
  if (!problem.empty()) app.session().notify(problem + " (settings are not saved until then)");
  prepare(app, line);
  bool selected = false;
  StateFile state(line.state);
  std::string title;
  while (!backend.wants_close() && !app.wants_quit()) {
    // Once a second without an event: files may have changed, else nothing is drawn.
    if (!backend.wait(1.0) && !app.has_news()) continue;
    for (const auto& file : backend.take_dropped_files()) app.open(file);
    backend.set_ground(app.look().surface);
    backend.frame([&] { app.frame(static_cast<float>(backend.display_scale())); });
    if (!selected) selected = select_given(app, line);
    if (app.wants_redraw()) backend.request_redraw();
    state.update(app);
    if (app.title() != title) {
      title = app.title();
      backend.set_title(title);
    }
  }
  return 0;
}

}  // namespace

int run(const CommandLine& line) {
  // Before anything is opened: what is wrong with the files matters more than a missing display.
  for (const auto& file : line.files) {
    std::error_code error;
    if (!fs::exists(file, error)) {
      throw IoError(fmt::format("cannot read {}: no such file", file.string()));
    }
  }
  if (line.screenshot) {
    if (const auto input = input_behind(*line.screenshot, line.files)) {
      throw ConfigError(fmt::format("--screenshot: {} is the input {}; name another file",
                                    line.screenshot->string(), input->string()));
    }
    check_output(*line.screenshot, /*overwrite=*/true);
  }
  return line.screenshot ? take_screenshot(line) : show_window(line);
}

}  // namespace kvscope::gui

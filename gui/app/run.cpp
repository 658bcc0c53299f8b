#include "gui/app/run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <thread>

#include "analysis/options/exit_code.hpp"
#include "core/base/fields_json.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/new_file.hpp"
#include "core/base/whole_file.hpp"
#include "gui/app/app.hpp"
#include "gui/model/results/export.hpp"
#include "gui/model/results/table_view.hpp"
#include "gui/platform/offscreen.hpp"
#include "gui/platform/window.hpp"

namespace kvscope::gui {

namespace fs = std::filesystem;

namespace {

constexpr double kLookSeconds = 1.0;  // between two looks at the files that are open

/// What the command line says, once the App is there.
void prepare(App& app, const CommandLine& line) {
  app.for_this_window([&](Settings& settings) {
    if (line.theme) settings.theme = *line.theme;
    if (line.scale) settings.ui_scale = *line.scale;
    for (const auto& file : line.files) app.open(file);
    if (line.session) app.load_session(*line.session);
    if (line.layout) app.show_layout(*line.layout);
  });
  if (line.panel) app.show_panel_alone(*line.panel);
  if (line.layer || line.head || line.query) app.keep_first_head();
}

/// Once the trace is open: layers and heads are known only then. Throws ConfigError for what it has
/// not.
bool select_given(App& app, const CommandLine& line) {
  const auto document = app.session().document();
  if (!document) return false;
  const TraceInfo& info = document->info();
  if (line.layer) info.layer_slot(*line.layer);
  if (line.head) info.q_slot(*line.head);
  if (line.query && (*line.query < 0 || *line.query >= info.n_tokens))
    throw ConfigError("{}: position {}: expected one of its {} tokens", document->name(),
                      *line.query, info.n_tokens);
  go_to(app.session(), {line.layer, line.head, line.query}, "command line");
  return true;
}

/// Keeps the state file up to date, whole at every moment.
class StateFile {
 public:
  explicit StateFile(const std::optional<fs::path>& file) : file_(file) {}
  void update(const App& app) {
    if (!file_) return;
    std::string text = json_text(app.state(), 1);
    if (text == last_) return;
    // After every action: not worth waiting for the device.
    write_new_file(*file_, text + "\n", /*overwrite=*/true, Sync::no);
    last_ = std::move(text);
  }

 private:
  std::optional<fs::path> file_;
  std::string last_;
};

/// Frames until nothing is opened or computed any more: some settle the layout, then as many as the
/// background work needs.
void settle(App& app, Offscreen& backend, double timeout,
            const std::function<void()>& after_frame = {}) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(timeout);
  constexpr int kSettle = 4;
  for (int calm = 0; calm < kSettle;) {
    backend.set_ground(app.look().surface);
    backend.frame([&] { app.frame(1.0f); });
    if (after_frame) after_frame();
    if (app.is_busy()) {
      calm = 0;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    } else {
      ++calm;
    }
    if (Clock::now() > end)
      throw IoError("the picture was not finished after {} s; give more with --timeout", timeout);
  }
}

int take_screenshot(const CommandLine& line) {
  Offscreen backend({static_cast<float>(line.width), static_cast<float>(line.height)});
  AppOptions options;
  options.n_threads = line.n_threads;
  options.opens_on_interest = true;
  App app(std::move(options), backend.fonts(), backend.texture_store());
  prepare(app, line);
  bool selected = false;
  settle(app, backend, line.timeout, [&] {
    if (!selected) selected = select_given(app, line);
  });
  // What went wrong while opening ends the program: nobody would read it in the picture.
  for (const Notice& notice : app.session().notices()) {
    if (notice.is_error) throw FormatError(notice.sentence);
  }
  StateFile(line.state).update(app);
  write_new_file(*line.screenshot, backend.png(), /*overwrite=*/true);
  // The picture is there to be looked at, but whoever made it in a script must hear of it.
  if (!app.panel_errors().empty())
    throw FormatError("a panel shows an error: {}", app.panel_errors().front());
  return 0;
}

/// The files of a manifest, drawn again from `request`.
std::vector<OutputFile> drawn_again(const Json& files, ExportRequest& request) {
  request.formats.clear();
  for (std::size_t i = 0; i < EnumNames<ExportFormat>::value.size(); ++i) {
    const std::string name = fmt::format("{}.{}", request.stem, EnumNames<ExportFormat>::value[i]);
    const auto is_it = [&](const Json& file) { return file.value("name", "") == name; };
    if (std::any_of(files.begin(), files.end(), is_it))
      request.formats.push_back(static_cast<ExportFormat>(i));
  }
  return request.formats.empty() ? std::vector<OutputFile>() : export_files(request);
}

/// Draws what a view's manifest says again and compares with the files beside it.
int reproduce_view(const CommandLine& line) {
  constexpr std::size_t kMaxBytes = std::size_t{64} << 20;
  const fs::path manifest = *line.reproduce;
  std::error_code error;
  const fs::path folder = fs::absolute(manifest, error).parent_path();
  const Json before = parse_ordered_json(read_regular_file(manifest, kMaxBytes), manifest.string());
  const auto word = [&](const char* key) {
    if (!before.is_object() || !before.contains(key) || !before[key].is_string())
      throw FormatError("{}: expected a manifest with \"{}\"", manifest.string(), key);
    return before[key].get<std::string>();
  };
  if (word("format") != "kvscope-view")
    throw FormatError("{}: this is no manifest of a view", manifest.string());
  const auto side = [window = before.value("window", Json())](const char* key, double otherwise) {
    const double known = kvscope::number_at(window, key);
    return std::isnan(known) ? otherwise : std::clamp(known, 0.5, 8192.0);
  };
  Offscreen backend({static_cast<float>(side("width", line.width)),
                     static_cast<float>(side("height", line.height))});
  AppOptions options;
  options.n_threads = line.n_threads;
  options.settings.ui_scale = side("scale", 1.0);
  App app(std::move(options), backend.fonts(), backend.texture_store());
  if (!before.contains("session"))
    throw FormatError("{}: the manifest holds no session", manifest.string());
  app.apply_session(before["session"], folder);
  const std::string panel = word("panel");
  if (!app.find_panel(panel)) app.panel(panel);  // says which there are
  settle(app, backend, line.timeout);
  for (const Notice& notice : app.session().notices()) {
    if (notice.is_error) throw FormatError(notice.sentence);
  }
  if (!app.area_of(panel) && panel != "traces") {
    app.show_panel_alone(panel);
    settle(app, backend, line.timeout);
  }
  ExportRequest request = app.export_of(app.panel(panel), folder);
  request.stem = word("stem");
  if (before.contains("render")) fields_from_json(before["render"], request.render);
  bool all_same = true;
  std::string report;
  const auto add = [&](const std::string& name, const std::string& verdict) {
    report += fmt::format("{}  {}\n", name, verdict);
    all_same = all_same && verdict == "same";
  };
  for (const Json& trace : before.value("traces", Json::array())) {
    const std::string hash = trace.value("content_hash", "");
    const Json& now = request.seen["traces"];
    const bool same = std::any_of(now.begin(), now.end(), [&](const Json& source) {
      return source["uuid"] == trace.value("uuid", "") && source["content_hash"] == hash;
    });
    add(trace.value("file", "?"), same ? "same" : "this trace has changed since, or is not there");
  }
  const Json files = before.value("files", Json::array());
  const std::vector<OutputFile> drawn = drawn_again(files, request);
  for (const Json& file : files) {
    const std::string name = file.value("name", "");
    if (name.empty() || name.find('/') != std::string::npos)
      throw FormatError("{}: expected names of files", manifest.string());
    const auto made = std::ranges::find(drawn, name, &OutputFile::name);
    if (made == drawn.end()) {
      add(name, "is not drawn any more");
    } else if (!fs::exists(folder / name, error)) {
      add(name, "is missing");
    } else {
      add(name, read_regular_file(folder / name, kMaxBytes) == made->bytes ? "same" : "differs");
    }
  }
  std::fputs(report.c_str(), stdout);
  if (std::fflush(stdout) != 0) return kInputError;
  return all_same ? kOk : kCheckFailed;
}

int show_window(const CommandLine& line) {
  Window backend(line.width, line.height);
  std::string problem;
  AppOptions options;
  try {
    options.settings = load_settings(settings_file());
  } catch (const Error& e) {
    problem = e.what();
  }
  options.settings_file = problem.empty() ? settings_file() : fs::path();
  options.n_threads = line.n_threads;
  options.opens_on_interest = true;
  options.wake = [&backend] { backend.wake(); };
  App app(std::move(options), backend.fonts(), backend.texture_store());
  if (!problem.empty()) app.session().notify(problem + " (settings are not saved until then)");
  prepare(app, line);
  bool selected = false;
  StateFile state(line.state);
  std::string title;
  auto looked = std::chrono::steady_clock::now();
  // A command that runs is asked to stop as Ctrl-C does, and may need seconds to leave a whole
  // file: the window stays until then, and shows what it waits for.
  const auto leaves = [&] {
    if (backend.wants_close()) {
      backend.set_wants_close(false);
      backend.request_redraw();  // the question that it may ask
      app.ask_quit();
    }
    if (!app.wants_quit()) return false;
    bool has_programs = false;
    for (const Job& job : app.session().bench().jobs.active()) {
      if (job.status().lane != Lane::programs) continue;
      job.cancel();
      has_programs = true;
    }
    return !has_programs;
  };
  while (!leaves()) {
    // Files may have changed: looked at every second, also while a command's progress or the mouse
    // wakes the window all the time. Without an event or news nothing is drawn.
    const bool has_event = backend.wait(kLookSeconds);
    bool has_news = false;
    const auto now = std::chrono::steady_clock::now();
    if (!has_event || now - looked >= std::chrono::duration<double>(kLookSeconds)) {
      has_news = app.has_news();
      looked = now;
    }
    if (!has_event && !has_news) continue;
    for (const auto& file : backend.take_dropped_files()) app.open(file);
    backend.set_ground(app.look().surface);
    backend.frame([&] { app.frame(static_cast<float>(backend.display_scale())); });
    try {
      selected = selected || select_given(app, line);
    } catch (const ConfigError& error) {
      selected = true;
      app.session().notify(error.what());
    }
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
  // One of several is said in the window, where the others open.
  std::error_code error;
  const auto is_missing = [&](const fs::path& file) { return !fs::exists(file, error); };
  const auto first = std::find_if(line.files.begin(), line.files.end(), is_missing);
  const bool opens_none = std::all_of(line.files.begin(), line.files.end(), is_missing);
  if (first != line.files.end() && (opens_none || line.screenshot))
    throw IoError("cannot read {}: no such file", first->string());
  if (line.reproduce) return reproduce_view(line);
  if (line.screenshot) {
    if (const auto input = input_behind(*line.screenshot, line.files)) {
      throw ConfigError("--screenshot: {} is the input {}; name another file",
                        line.screenshot->string(), input->string());
    }
    check_output(*line.screenshot, /*overwrite=*/true);
  }
  return line.screenshot ? take_screenshot(line) : show_window(line);
}

}  // namespace kvscope::gui

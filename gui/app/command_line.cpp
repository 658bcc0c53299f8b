#include "gui/app/command_line.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <charconv>
#include <sstream>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/version.hpp"
#include "gui/model/session/arrangement.hpp"

namespace kvscope::gui {

namespace po = boost::program_options;

namespace {

constexpr const char* kHead =
    "usage: kvscope-explorer [trace.h5 | result.h5 | table.csv | study.toml ...] "
    "[--session s.json]\n"
    "\n"
    "Looks at recorded attention and at results in a window. With --screenshot it draws one "
    "picture without a\n"
    "display and ends: for documents and tests.\n\n";
constexpr const char* kTail =
    "\nFiles may also be dropped onto the window. F1 shows the keys. Settings: "
    "~/.config/kvscope/explorer.json\n"
    "(KVSCOPE_CONFIG names another folder).\n";

/// "1600x900" into two numbers.
void parse_size(const std::string& text, CommandLine& line) {
  int width = 0;
  int height = 0;
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, width);
  const bool has_x = first.ec == std::errc{} && first.ptr != end && *first.ptr == 'x';
  const auto second = has_x ? std::from_chars(first.ptr + 1, end, height) : first;
  const bool good = has_x && second.ec == std::errc{} && second.ptr == end && width >= 320 &&
                    height >= 240 && width <= 8192 && height <= 8192;
  if (!good) {
    throw ConfigError("--size: expected WIDTHxHEIGHT from 320x240 to 8192x8192, found \"{}\"",
                      text);
  }
  line.width = width;
  line.height = height;
}

template <class T>
void take(const po::variables_map& given, const char* name, std::optional<T>& target) {
  if (given.count(name) > 0) target = given[name].as<T>();
}

/// Options by their names of an earlier version are accepted for one more, with a remark.
std::vector<std::string> with_new_names(std::vector<std::string> words,
                                        std::vector<std::string>& remarks) {
  for (std::string& word : words) {
    for (const char* const old_name : {"--layer", "--head"}) {
      const std::size_t end = std::min(word.find('='), word.size());
      if (word.substr(0, end) != old_name) continue;
      word.insert(end, "s");
      remarks.push_back(fmt::format(
          "kvscope-explorer: {0} is called {0}s now; the old name goes with the next version",
          old_name));
    }
  }
  return words;
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv) {
  CommandLine line;
  std::vector<std::string> files;
  std::string size;
  std::string theme;
  std::string session;
  std::string screenshot;
  std::string reproduce;
  std::string state;
  po::options_description visible("Options");
  auto add = visible.add_options();
  add("session", po::value(&session)->value_name("FILE"),
      "a saved session (Ctrl+S); given together with traces, it is applied to these");
  std::vector<std::string> layouts;
  for (const Layout& layout : standard_layouts()) layouts.push_back(layout.name);
  const std::string layout_words = fmt::format("{}", fmt::join(layouts, ", "));
  add("layout", po::value<std::string>()->value_name("NAME"), layout_words.c_str());
  add("panel", po::value<std::string>()->value_name("NAME"), "show this panel alone");
  add("layers", po::value<long long>()->value_name("N"), "layer selected at the start");
  add("heads", po::value<long long>()->value_name("N"), "query head selected at the start");
  add("query", po::value<long long>()->value_name("N"),
      "position of the query selected at the start");
  add("theme", po::value(&theme)->value_name("NAME"), "light or dark");
  add("scale", po::value<double>()->value_name("X"),
      "size of letters and controls, times that of the screen");
  add("size", po::value(&size)->value_name("WxH"), "of the window or picture in pixels [1600x900]");
  add("screenshot", po::value(&screenshot)->value_name("FILE.png"),
      "draw one picture without a display, and end");
  add("reproduce", po::value(&reproduce)->value_name("FILE.json"),
      "draw an exported view again from its manifest, compare the bytes, and end (code 5 if they "
      "differ); kvscope reproduce does so");
  add("timeout", po::value(&line.timeout)->value_name("SECONDS"),
      "how long a screenshot waits for computations [120]");
  add("state", po::value(&state)->value_name("FILE"),
      "keep the selection and the positions of panels as JSON in FILE, for programs that watch");
  add("threads", po::value(&line.n_threads)->value_name("N"),
      "threads of background work [all cores]");
  add("version", "print the version");
  add("help,h", "print this text");
  po::options_description all;
  all.add(visible).add_options()("file", po::value(&files));
  po::positional_options_description positional;
  positional.add("file", -1);

  po::variables_map given;
  try {
    po::store(
        po::command_line_parser(with_new_names({argv + 1, argv + argc}, line.remarks))
            .options(all)
            .positional(positional)
            .style(po::command_line_style::unix_style & ~po::command_line_style::allow_guessing)
            .run(),
        given);
    po::notify(given);
  } catch (const po::error& e) {
    throw ConfigError("{}; kvscope-explorer --help lists the options", e.what());
  }
  if (given.count("help") > 0) {
    std::ostringstream out;
    out << kHead << visible << kTail;
    line.text = out.str();
    return line;
  }
  if (given.count("version") > 0) {
    line.text = fmt::format("kvscope-explorer {}\n", version());
    return line;
  }
  line.files.assign(files.begin(), files.end());
  if (!session.empty()) line.session = session;
  if (!state.empty()) line.state = state;
  if (!screenshot.empty()) line.screenshot = screenshot;
  if (!reproduce.empty()) line.reproduce = reproduce;
  take(given, "panel", line.panel);
  take(given, "layout", line.layout);
  take(given, "layers", line.layer);
  take(given, "heads", line.head);
  take(given, "query", line.query);
  take(given, "scale", line.scale);
  if (!size.empty()) parse_size(size, line);
  if (!theme.empty()) {
    plot::Ground ground{};
    parse_field(Field{"--theme", ""}, theme, ground);
    line.theme = ground;
  }
  if (line.scale && !(*line.scale >= 0.5 && *line.scale <= 4.0))
    throw ConfigError("--scale: expected a number from 0.5 to 4, found {}", *line.scale);
  if (!(line.timeout > 0.0)) throw ConfigError("--timeout: expected more than 0 seconds");
  if (line.n_threads < 0) throw ConfigError("--threads: expected 0 (all cores) or more");
  return line;
}

}  // namespace kvscope::gui

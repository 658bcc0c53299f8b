#include "gui/app/command_line.hpp"

#include "analysis/base/mapped.hpp"
#include "analysis/options/options.hpp"
#include "core/base/number_text.hpp"
#include "core/base/version.hpp"
#include "gui/model/session/arrangement.hpp"

namespace kvscope::gui {

namespace {

constexpr const char* kProgram = "kvscope-explorer";
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
void parse_size(std::string_view text, CommandLine& line) {
  const std::size_t x = std::min(text.find('x'), text.size());
  const auto width = number_from<int>(text.substr(0, x));
  const auto height = number_from<int>(text.substr(std::min(x + 1, text.size())));
  const auto fits = [](const std::optional<int>& n, int least) {
    return n && *n >= least && *n <= 8192;
  };
  if (!fits(width, 320) || !fits(height, 240))
    throw UsageError("--size: expected WIDTHxHEIGHT from 320x240 to 8192x8192, found \"{}\"", text);
  line.width = *width;
  line.height = *height;
}

/// Scripts that hand over an empty variable give nothing.
void or_nothing(OptionSpec& spec) {
  spec.set = [set = std::move(spec.set)](std::string_view text) {
    if (!text.empty()) set(text);
  };
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv) {
  CommandLine line;
  OptionSet options(kProgram);
  options.positional("FILE", "", line.files, /*required=*/false);
  or_nothing(
      options.add("session", "FILE",
                  "a saved session (Ctrl+S); given together with traces, it is applied to these",
                  line.session));
  const auto layouts = mapped<std::string>(standard_layouts(), &Layout::name);
  options.add("layout", "NAME", fmt::format("{}", fmt::join(layouts, ", ")), line.layout);
  options.add("panel", "NAME", "show this panel alone", line.panel);
  options.add("layers", "N", "layer selected at the start", line.layer);
  options.add("heads", "N", "query head selected at the start", line.head);
  options.add("query", "N", "position of the query selected at the start", line.query);
  or_nothing(options.add("theme", "NAME", "light or dark", line.theme));
  options.add("scale", "X", "size of letters and controls, times that of the screen", line.scale,
              in(0.5, 4));
  std::string size = "1600x900";
  or_nothing(options.add("size", "WxH", "of the window or picture in pixels", size));
  or_nothing(options.add("screenshot", "FILE.png", "draw one picture without a display, and end",
                         line.screenshot));
  or_nothing(options.add(
      "reproduce", "FILE.json",
      "draw an exported view again from its manifest, compare the bytes, and end (code 5 if they "
      "differ); kvscope reproduce does so",
      line.reproduce));
  options.add("timeout", "SECONDS", "how long a screenshot waits for computations", line.timeout,
              above(0));
  or_nothing(options.add(
      "state", "FILE",
      "keep the selection and the positions of panels as JSON in FILE, for programs that watch",
      line.state));
  options.add("threads", "N", "threads of background work", line.n_threads, at_least(0))
      .default_text = "all cores";
  bool wants_version = false;
  options.flag("version", "print the version", wants_version);
  options.parse(Words(argv + 1, argv + argc));
  if (options.wants_help()) {
    line.text = kHead + options.text() + kTail;
  } else if (wants_version) {
    line.text = fmt::format("{} {}\n", kProgram, version());
  } else {
    parse_size(size, line);
  }
  return line;
}

}  // namespace kvscope::gui

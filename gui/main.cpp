// kvscope-explorer: the window program, and its screenshots without one.
#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "core/base/error.hpp"
#include "core/base/escape.hpp"
#include "gui/app/command_line.hpp"
#include "gui/app/run.hpp"

namespace {

constexpr int kUsage = 2;
constexpr int kInput = 3;

int fail(const std::string& words, int code) {
  const std::string line = short_message(terminal_text(words));
  std::fputs(fmt::format("kvscope-explorer: {}\n", line).c_str(), stderr);
  return code;
}

}  // namespace

// The one place where exceptions of the program's start end; later ones become sentences in the
// window.
int main(int argc, char** argv) {
  using namespace kvscope;
  try {
    const gui::CommandLine line = gui::parse_command_line(argc, argv);
    if (!line.text.empty()) {
      std::fputs(line.text.c_str(), stdout);
      return std::fflush(stdout) == 0 ? 0 : kInput;
    }
    return gui::run(line);
  } catch (const ConfigError& e) {
    return fail(e.what(), kUsage);
  } catch (const Error& e) {
    return fail(e.what(), kInput);
  } catch (const std::exception& e) {
    return fail(e.what(), kInput);
  }
}

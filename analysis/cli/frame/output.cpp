#include "analysis/cli/frame/output.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "analysis/cli/frame/host.hpp"
#include "core/base/error.hpp"
#include "core/base/escape.hpp"
#include "core/base/json.hpp"

namespace kvscope::cli {

void prepare_standard_streams() {
  for (int fd : {0, 1, 2}) {
    // Opened the wrong way round on purpose: a later write to a closed standard output still fails,
    // and is reported.
    if (fcntl(fd, F_GETFD) == -1 && errno == EBADF)
      open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
  }
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

namespace {

void write_to_standard_output(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(STDOUT_FILENO, text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno == EPIPE) {
      throw OutputClosed();
    } else if (errno != EINTR) {
      throw IoError("cannot write to standard output: {}", std::strerror(errno));
    }
  }
}

}  // namespace

void print(std::string_view text) {
  if (Host* const to = host()) return to->print(text);
  write_to_standard_output(terminal_text(text));
}

void print_data(std::string_view bytes) {
  if (Host* const to = host()) return to->print(bytes);
  if (::isatty(STDOUT_FILENO) == 1) {
    print(bytes);
  } else {
    write_to_standard_output(bytes);
  }
}

void print_json(const nlohmann::ordered_json& json, int indent) {
  print(json_text(json, indent) + "\n");
}

void note(std::string_view words) {
  if (Host* const to = host()) return to->note(words);
  std::string line;
  for (const char c : terminal_text(words))  // a name's line break must not begin a line of ours
    line += c == '\n' ? std::string("\\n") : std::string(1, c);
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fputc('\n', stderr);
}

}  // namespace kvscope::cli

#include "core/model/chat/template_renderer.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>

#include "core/base/embedded_file.hpp"
#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/number_text.hpp"
#include "core/base/start_program.hpp"
#include "core/base/stopwatch.hpp"

namespace kvscope {

std::span<const EmbeddedFile> render_scripts();  // render.py alone (core/CMakeLists.txt)

namespace {

constexpr double kMostSeconds = 20.0;  // twice what render.py allows
constexpr std::size_t kMostAnswer = std::size_t{64} << 20;
constexpr std::size_t kMostDigits = 10;  // of an answer's length

/// A Python that runs render.py, killed with its owner.
class RenderProcess {
 public:
  /// Throws IoError if it does not start or has no jinja2.
  explicit RenderProcess(const std::string& python) : python_(python) {
    // A socket, since writing to a process that ended is then an error and no signal.
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
      throw IoError("no socket to {} can be made: {}", python, std::strerror(errno));
    socket_ = Descriptor(ends[0]);
    const Descriptor its(ends[1]);
    const Descriptor nowhere = Descriptor::open("/dev/null", O_WRONLY);
    const std::string script(render_scripts().front().text);
    pid_ = start_program({{python, "-I", "-c", script}, {}, its.get(), its.get(), nowhere.get()});
  }
  ~RenderProcess() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    wait_for_program(pid_);
  }
  RenderProcess(const RenderProcess&) = delete;
  RenderProcess& operator=(const RenderProcess&) = delete;

  /// Sends a message, if it is not empty, and gives the next answer. Throws IoError.
  nlohmann::json exchange(std::string_view message) {
    const std::string sent =
        message.empty() ? std::string() : fmt::format("{}\n{}", message.size(), message);
    std::size_t n_sent = 0;
    std::string got;
    const Stopwatch clock;
    while (!is_whole(got)) {
      const bool sends = n_sent < sent.size();
      pollfd end{socket_.get(), static_cast<short>(sends ? POLLOUT : POLLIN), 0};
      ::poll(&end, 1, /*milliseconds=*/100);
      if (clock.seconds() > kMostSeconds) fail("gave no answer in {} s", kMostSeconds);
      std::array<char, 1 << 16> buffer;
      const ssize_t n = sends ? ::send(socket_.get(), sent.data() + n_sent, sent.size() - n_sent,
                                       MSG_NOSIGNAL | MSG_DONTWAIT)
                              : ::recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (n <= 0) fail("{}", end_text(wait_for_program(std::exchange(pid_, -1))));
      if (sends)
        n_sent += static_cast<std::size_t>(n);
      else
        got.append(buffer.data(), static_cast<std::size_t>(n));
    }
    return parse_json(std::string_view(got).substr(got.find('\n') + 1), "answer of " + python_);
  }

 private:
  template <class... Values>
  [[noreturn]] void fail(fmt::format_string<Values...> text, Values&&... values) const {
    throw IoError(fmt::format("{}, which renders chat templates, {}", python_,
                              fmt::format(text, std::forward<Values>(values)...)));
  }

  bool is_whole(const std::string& got) const {
    const std::size_t begin = got.find('\n') + 1;
    if (begin == 0 && got.size() <= kMostDigits) return false;
    const auto n = number_from<std::size_t>(got.substr(0, begin - 1));
    if (begin == 0 || !n || *n > kMostAnswer || got.size() - begin > *n) {
      fail("wrote {}: expected the length of an answer (at most {} bytes) and as many bytes",
           quote(got), kMostAnswer);
    }
    return got.size() - begin == *n;
  }

  std::string python_;
  Descriptor socket_;
  pid_t pid_ = -1;
};

std::unique_ptr<RenderProcess> start_rendering() {
  const char* const named = std::getenv("KVSCOPE_PYTHON");
  const bool is_named = named != nullptr && *named != '\0';
  std::string tried;
  for (const std::string& python : is_named
                                       ? std::vector<std::string>{named}
                                       : std::vector<std::string>{"python3", "/usr/bin/python3"}) {
    try {
      auto process = std::make_unique<RenderProcess>(python);
      const nlohmann::json first = process->exchange("");
      const auto missing = JsonObject(first, "answer of " + python).string_if("error");
      if (!missing) return process;
      tried += fmt::format("{}{}: {}", tried.empty() ? "" : "; ", python, quote(*missing));
    } catch (const Error& error) {
      tried += fmt::format("{}{}", tried.empty() ? "" : "; ", error.what());
    }
  }
  throw ConfigError(
      "chat templates are rendered by Python's jinja2, which was not found ({}): install it (apt "
      "install python3-jinja2, or pip install jinja2), or name a Python that has it in "
      "KVSCOPE_PYTHON",
      tried);
}

}  // namespace

struct TemplateRenderer::State {
  std::mutex mutex;
  std::unique_ptr<RenderProcess> process;  // null: not started yet, or not to be trusted any more
};

TemplateRenderer::TemplateRenderer() : state_(std::make_unique<State>()) {}
TemplateRenderer::~TemplateRenderer() = default;

std::string TemplateRenderer::render(const nlohmann::ordered_json& asked,
                                     const std::string& where) {
  std::string message;
  try {
    message = asked.dump();
  } catch (const nlohmann::json::exception&) {
    throw FormatError("{}: expected it, the special tokens and the text in UTF-8", where);
  }
  const std::lock_guard lock(state_->mutex);
  if (!state_->process) state_->process = start_rendering();
  try {
    const nlohmann::json answer = state_->process->exchange(message);
    const JsonObject fields(answer, "answer of the process that renders");
    const auto error = fields.string_if("error");
    if (!error) return fields.string("text");
    throw FormatError("{}: {}", where, *error);
  } catch (const IoError& error) {
    state_->process.reset();
    throw IoError("{}: {}", where, error.what());
  }
}

}  // namespace kvscope

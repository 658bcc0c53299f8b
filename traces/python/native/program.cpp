// The commands of kvscope, run inside the Python process: run() for the package, main() for
// the console script.
#include "analysis/cli/frame/program.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>

#include "analysis/cli/frame/host.hpp"
#include "traces/python/native/errors.hpp"
#include "traces/python/native/module.hpp"

namespace kvscope::python {

namespace nb = nanobind;

namespace {

constexpr std::chrono::milliseconds kLook(20);  // how often signals and progress are looked at

/// Collects what the command says; its thread writes, the caller's reads.
class Listener final : public cli::Host {
 public:
  void print(std::string_view text) override { text_ += text; }
  void note(std::string_view line) override { notes_.emplace_back(line); }
  void report(const Progress& progress) override {
    const std::lock_guard lock(mutex_);
    progress_ = progress;
  }
  std::stop_token stop_token() const override { return stop_.get_token(); }

  void request_stop() { stop_.request_stop(); }
  void end() {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    over_.notify_all();
  }
  /// False once the command is over.
  bool wait() {
    std::unique_lock lock(mutex_);
    return !over_.wait_for(lock, kLook, [&] { return is_over_; });
  }
  std::optional<Progress> take_progress() {
    const std::lock_guard lock(mutex_);
    return std::exchange(progress_, std::nullopt);
  }
  const std::string& text() const { return text_; }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  std::stop_source stop_;
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::optional<Progress> progress_;
  std::string text_;
  std::vector<std::string> notes_;
};

std::timed_mutex one_command;  // the host is one for the process
std::atomic<bool> is_running = false;

/// Waits for the command of another thread. Ctrl-C ends the waiting.
std::unique_lock<std::timed_mutex> wait_for_turn() {
  if (is_running && CalledBack::depth > 0) {
    throw ConfigError(
        "a command of kvscope inside another one's selector or progress function, which waits for "
        "it: expected it before or after that one");
  }
  std::unique_lock one(one_command, std::defer_lock);
  while (!one) {
    {
      const nb::gil_scoped_release released;
      (void)one.try_lock_for(kLook);
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
  return one;
}

/// Texts as they are, and names of files in their bytes, which may be no UTF-8.
std::vector<std::string> words_of(const std::vector<nb::object>& given) {
  const nb::object encode = nb::module_::import_("os").attr("fsencode");
  std::vector<std::string> words;
  for (const nb::object& one : given) {
    const auto word = nb::cast<nb::bytes>(encode(one));
    words.emplace_back(word.c_str(), word.size());
  }
  return words;
}

nb::list texts_of(const std::vector<std::string>& lines) {
  nb::list texts;
  for (const std::string& line : lines)
    texts.append(nb::steal(
        PyUnicode_DecodeUTF8(line.data(), static_cast<Py_ssize_t>(line.size()), "replace")));
  return texts;
}

/// Runs a command on a thread of its own while this one sees to signals (Ctrl-C) and progress,
/// which only Python's own threads may. Returns (exit code, standard output, notes).
std::tuple<int, nb::bytes, nb::list> run(const std::vector<nb::object>& given,
                                         const nb::object& on_progress) {
  const std::vector<std::string> words = words_of(given);
  const std::unique_lock one = wait_for_turn();
  take_failure();
  Listener listener;
  int code = 0;
  std::optional<nb::python_error> stopped_by;
  {
    is_running = true;
    std::thread worker([&] {
      const cli::HostScope scope(listener);
      code = cli::run_program(words);
      listener.end();
    });
    const auto guarded = [&](auto&& look) {
      try {
        look();
      } catch (nb::python_error& error) {
        stopped_by.emplace(std::move(error));
        listener.request_stop();
      }
    };
    for (bool is_running = true; is_running;) {
      {
        const nb::gil_scoped_release released;
        is_running = listener.wait();
      }
      guarded([&] {
        const auto progress = listener.take_progress();
        if (progress && !on_progress.is_none()) {
          const CalledBack called_back;
          on_progress(progress->stage, progress->done, progress->total, progress->unit);
        }
      });
      guarded([] {
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
      });
    }
    const nb::gil_scoped_release released;
    worker.join();
    is_running = false;  // the last progress has been told
  }
  auto failure = take_failure();
  if (stopped_by) throw std::move(*stopped_by);
  if (code != 0 && failure) throw std::move(*failure);
  return {code, nb::bytes(listener.text().data(), listener.text().size()),
          texts_of(listener.notes())};
}

int main_program(const std::vector<nb::object>& given) {
  const std::vector<std::string> words = words_of(given);
  const nb::gil_scoped_release released;
  return cli::run_as_process(words);
}

}  // namespace

void bind_program(nb::module_& module) {
  module.def("run", &run, nb::arg("words"), nb::arg("on_progress") = nb::none());
  module.def("main", &main_program, nb::arg("words"));
}

}  // namespace kvscope::python

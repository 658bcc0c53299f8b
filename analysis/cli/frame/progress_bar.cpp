#include "analysis/cli/frame/progress_bar.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "analysis/cli/frame/host.hpp"
#include "analysis/cli/frame/output.hpp"
#include "core/base/json.hpp"
#include "core/base/number_text.hpp"

namespace kvscope::cli {

namespace {

constexpr double kRedrawSeconds = 0.1;

int terminal_width() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

void write_error(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace

ProgressReporter::ProgressReporter(ProgressMode mode) : mode_(mode), last_report_(Clock::now()) {
  if (mode_ == ProgressMode::automatic)
    mode_ = isatty(STDERR_FILENO) != 0 ? ProgressMode::bar : ProgressMode::none;
}

ProgressReporter::~ProgressReporter() {
  close_line();
}

ProgressFn ProgressReporter::callback() {
  if (Host* const to = host()) return [to](const Progress& progress) { to->report(progress); };
  if (mode_ == ProgressMode::none) return {};
  return [this](const Progress& progress) { report(progress); };
}

void ProgressReporter::report(const Progress& progress) {
  const auto now = Clock::now();
  const bool is_new = progress.stage != stage_ || (stage_ended_ && progress.done < progress.total);
  if (is_new) {
    close_line();
    stage_ = progress.stage;
    stage_start_ = last_report_;
    first_report_ = now;
    first_done_ = progress.done;
    stage_ended_ = false;
    last_tenth_ = -1;
  }
  last_report_ = now;
  if (!is_new && stage_ended_) {
    return;  // said already that it is done
  }
  const bool is_last = progress.total > 0 && progress.done >= progress.total;
  const double since_drawn = std::chrono::duration<double>(now - last_drawn_).count();
  if (!is_new && !is_last && since_drawn < kRedrawSeconds) return;
  last_drawn_ = now;
  stage_ended_ = is_last;
  const double seconds = std::chrono::duration<double>(now - stage_start_).count();
  if (mode_ == ProgressMode::bar) {
    draw_bar(progress, seconds, is_last);
  } else if (mode_ == ProgressMode::plain) {
    print_line(progress, seconds, is_last);
  } else {
    print_json_line(progress, seconds);
  }
}

std::string ProgressReporter::rate_text(const Progress& progress) const {
  const double seconds = std::chrono::duration<double>(Clock::now() - first_report_).count();
  if (seconds < 0.2 || progress.done <= first_done_) return "";
  const double rate = static_cast<double>(progress.done - first_done_) / seconds;
  return rate < 10 ? fmt::format("{:.1f} {}/s", rate, progress.unit)
                   : fmt::format("{:.0f} {}/s", rate, progress.unit);
}

void ProgressReporter::draw_bar(const Progress& progress, double seconds, bool is_last) {
  std::string line;
  const std::string rate = rate_text(progress);
  if (progress.total <= 0) {
    line = fmt::format("{:<12} {} {}  {}", progress.stage, progress.done, progress.unit, rate);
  } else {
    const double part = std::clamp(
        static_cast<double>(progress.done) / static_cast<double>(progress.total), 0.0, 1.0);
    std::string tail = fmt::format(" {:3.0f}%  {}/{} {}  {}", std::floor(part * 100), progress.done,
                                   progress.total, progress.unit, rate);
    if (is_last) {
      tail += fmt::format("  {}", seconds_text(seconds));
    } else if (!rate.empty() && seconds > 1.0) {
      const double since_first =
          std::chrono::duration<double>(Clock::now() - first_report_).count();
      const double per_unit = since_first / static_cast<double>(progress.done - first_done_);
      tail +=
          fmt::format("  {} left",
                      seconds_text(per_unit * static_cast<double>(progress.total - progress.done)));
    }
    const int room = terminal_width() - 1 - 13 - 2 - static_cast<int>(tail.size());
    const int width = std::clamp(room, 0, 30);
    const int filled = static_cast<int>(std::lround(part * width));
    line = fmt::format("{:<12} ", progress.stage);
    if (width >= 5)
      line += fmt::format("[{}{}]", std::string(static_cast<std::size_t>(filled), '='),
                          std::string(static_cast<std::size_t>(width - filled), ' '));
    line += tail;
  }
  write_error(fmt::format(
      "\r{}\033[K", line.substr(0, static_cast<std::size_t>(std::max(terminal_width() - 1, 20)))));
  line_open_ = true;
  if (is_last) close_line();
}

void ProgressReporter::print_line(const Progress& progress, double seconds, bool is_last) {
  const int tenth = progress.total > 0 ? static_cast<int>(progress.done * 10 / progress.total) : 0;
  if (tenth == last_tenth_ && !is_last) return;
  last_tenth_ = tenth;
  const std::string of = progress.total > 0 ? fmt::format("/{}", progress.total) : "";
  const std::string rate = rate_text(progress);
  write_error(fmt::format("{}: {}{} {}{}{}\n", progress.stage, progress.done, of, progress.unit,
                          rate.empty() ? "" : ", " + rate,
                          is_last ? ", " + seconds_text(seconds) : ""));
}

void ProgressReporter::print_json_line(const Progress& progress, double seconds) {
  const Json json = {{"stage", progress.stage},
                     {"done", progress.done},
                     {"total", progress.total},
                     {"unit", progress.unit},
                     {"seconds", seconds}};
  write_error(json.dump() + "\n");
}

void ProgressReporter::close_line() {
  if (line_open_) write_error("\n");
  line_open_ = false;
}

}  // namespace kvscope::cli

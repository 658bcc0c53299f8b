// Shows the progress of long work on standard error, as a bar, as lines, as JSON lines, or not at
// all.
#pragma once

#include <array>
#include <chrono>
#include <string_view>

#include "core/base/fields.hpp"
#include "core/base/progress.hpp"

namespace kvscope::cli {

/// automatic: a bar if standard error is a terminal, else nothing.
enum class ProgressMode { automatic, bar, plain, json, none };

/// Draws what its callback is told. A stage's last line stays; a bar that is cut short ends its
/// line.
class ProgressReporter {
 public:
  explicit ProgressReporter(ProgressMode mode);
  ~ProgressReporter();
  ProgressReporter(const ProgressReporter&) = delete;
  ProgressReporter& operator=(const ProgressReporter&) = delete;

  /// Valid while this object lives; empty if nothing is to be shown.
  ProgressFn callback();

 private:
  using Clock = std::chrono::steady_clock;
  void report(const Progress& progress);
  void draw_bar(const Progress& progress, double seconds, bool is_last);
  void print_line(const Progress& progress, double seconds, bool is_last);
  void print_json_line(const Progress& progress, double seconds);
  std::string rate_text(const Progress& progress) const;
  void close_line();

  ProgressMode mode_;
  std::string stage_;
  Clock::time_point last_report_;  // of the stage before: when this one began
  Clock::time_point stage_start_;
  Clock::time_point first_report_;  // rates count from here, since a stage need not begin at 0
  std::int64_t first_done_ = 0;
  Clock::time_point last_drawn_;
  bool line_open_ = false;
  bool stage_ended_ = false;
  int last_tenth_ = -1;
};

}  // namespace kvscope::cli

template <>
struct kvscope::EnumNames<kvscope::cli::ProgressMode> {
  static constexpr std::array<std::string_view, 5> value = {"auto", "bar", "plain", "json", "none"};
};

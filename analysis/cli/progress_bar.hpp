// Shows the progress of long work on standard error, as a bar, as lines, as JSON lines, or not at
// all.
#pragma once

#include <array>
#include <chrono>
#include <memory>
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
  void close_line();

  ProgressMode mode_;
  std::string stage_;
  Clock::time_point stage_start_;
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

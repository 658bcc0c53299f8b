// The explorer's arguments.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "analysis/plot/theme.hpp"

namespace kvscope::gui {

struct CommandLine {
  std::string text;  // --help and --version: to be printed instead of anything else
  std::vector<std::filesystem::path> files;
  std::optional<std::filesystem::path> session;
  std::optional<std::filesystem::path> screenshot;
  std::optional<std::filesystem::path> reproduce;
  std::optional<std::filesystem::path> state;
  std::optional<std::string> panel;
  std::optional<std::string> layout;
  std::optional<long long> layer;
  std::optional<long long> head;
  std::optional<long long> query;
  std::optional<plot::Ground> theme;
  std::optional<double> scale;
  int width = 1600;
  int height = 900;
  int n_threads = 0;
  double timeout = 120.0;  // seconds that a screenshot may wait for what is computed
};

/// Throws UsageError for what is wrong, naming the option.
CommandLine parse_command_line(int argc, const char* const* argv);

}  // namespace kvscope::gui

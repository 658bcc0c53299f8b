// Help texts, built from the commands and their option lists.
#pragma once

#include <string>

#include "analysis/cli/frame/command.hpp"

namespace kvscope::cli {

/// Commands by what is asked, on one screen.
std::string overview_text();

/// The commands of one group ("analyze").
std::string group_text(const std::string& group);

/// Usage, description, options and examples of one command. `options`: after command.declare().
std::string command_text(const Command& command, const OptionSet& options);

/// Breaks `text` into lines of at most `width` columns that begin with `indent` blanks; line breaks
/// in it are kept.
std::string wrap(const std::string& text, int indent, int width = 96);

}  // namespace kvscope::cli

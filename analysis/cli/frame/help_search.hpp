// `kvscope help WORDS`, where the words are a question and no command's name.
#pragma once

#include <string>
#include <vector>

namespace kvscope::cli {

/// What people call a command, in words that its summary has not: for the window's palette too.
std::string other_words(const std::string& command);

/// Names of the commands that answer, the best first; at most n. Words count in a command's name
/// and synonyms, its summary, and (least) its description, examples and options; rare ones more.
std::vector<std::string> commands_about(const std::string& words, std::size_t n);

/// True if they ask of the window, which is a program of its own: kvscope-explorer.
bool is_about_window(const std::string& words);

/// commands_about with their summaries, and what else the words name: options with the commands
/// that have them, figures, methods and columns of results. Empty if nothing does.
std::string help_about(const std::string& words);

}  // namespace kvscope::cli

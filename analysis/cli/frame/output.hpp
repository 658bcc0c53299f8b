// Standard output carries data only; everything a person should merely know goes to standard error.
#pragma once

#include <fmt/core.h>

#include <exception>
#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <utility>

#include "core/base/shell_word.hpp"

namespace kvscope::cli {

/// The reader of standard output went away (a closed pipe): the program ends quietly.
class OutputClosed : public std::exception {};

/// Keeps descriptors 0 to 2 occupied, so that no data file can take the place of a closed standard
/// stream, and turns a broken pipe into OutputClosed instead of a signal. Call once, first thing in
/// main.
void prepare_standard_streams();

/// Writes `text` to standard output and flushes it, without control characters and hidden signs
/// that strings of a file may hold (terminal_text). Throws OutputClosed, or IoError if it
/// cannot be written.
void print(std::string_view text);

/// The same of a text that fmt writes.
template <class First, class... Rest>
void print(fmt::format_string<First, Rest...> text, First&& first, Rest&&... rest) {
  print(fmt::format(text, std::forward<First>(first), std::forward<Rest>(rest)...));
}

/// The same for bytes that another program wants as they are; on a terminal they are text.
void print_data(std::string_view bytes);

/// Prints `json` (core/base/json.hpp) and a line end. NaN and infinities become null. indent -1:
/// on one line, for long arrays.
void print_json(const nlohmann::ordered_json& json, int indent = 2);

/// Writes a line to standard error, as print() writes text.
void note(std::string_view words);
/// The same of a sentence that fmt writes.
template <class First, class... Rest>
void note(fmt::format_string<First, Rest...> text, First&& first, Rest&&... rest) {
  note(fmt::format(text, std::forward<First>(first), std::forward<Rest>(rest)...));
}

}  // namespace kvscope::cli

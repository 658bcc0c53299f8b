// Texts with places for values, as "{mass:%} of {keys} keys", and tables whose cells are such
// texts: how a report in JSON is said to people.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

namespace kvscope::cli {

/// `text` with values of an object in place of {key}: words as they are, numbers with four
/// digits, {key:3} with three, {key:%} as percent, {key:+%} as a change in percent, {key:back} the
/// same of what comes back, {key:s} as a time, {key:ms} in milliseconds, {key:B} as a size,
/// {key:KiB} in these, {key:M} in millions, {key:.2f} with two decimals, {key:q} a word in quotes;
/// "-" for what is not there, as an empty word.
std::string filled_in(std::string_view text, const nlohmann::ordered_json& values);

/// A column of a table: its header, and the text of a cell.
struct FilledColumn {
  std::string_view header;
  std::string_view cell;
};

/// A line for each row. A cell is "-" if one of its values is not there, or nothing if its text
/// ends with "?", which is left out.
std::string filled_table(const nlohmann::ordered_json& rows, std::span<const FilledColumn> columns);
inline std::string filled_table(const nlohmann::ordered_json& rows,
                                std::initializer_list<FilledColumn> columns) {
  return filled_table(rows, std::span(columns.begin(), columns.size()));
}

}  // namespace kvscope::cli

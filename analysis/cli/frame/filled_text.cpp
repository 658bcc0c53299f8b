#include "analysis/cli/frame/filled_text.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "analysis/base/mapped.hpp"
#include "analysis/cli/frame/text_table.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/number_text.hpp"

namespace kvscope::cli {
namespace {

/// Nothing for what is no word and no number, and for the empty word.
std::optional<std::string> value_text(const Json& value, std::string_view how) {
  if (value.is_string() && how == "q") return quote(value.get<std::string>());
  if (value.is_string() && value != "") return value.get<std::string>();
  if (!value.is_number() || std::isnan(value.get<double>())) return std::nullopt;
  const auto number = value.get<double>();
  if (how == "%") return percent_text(number);
  if (how == "back") return number > 1.0005 ? "more than all" : percent_text(number);
  if (how == "s") return seconds_text(number);
  if (how == "ms") return number_text(1e3 * number, 3) + " ms";
  if (how == "B") return bytes_text(number);
  if (how == "M") return fmt::format("{:.0f}M", number / 1e6);
  if (how == "+%") return fmt::format("{:+.2f} %", 100.0 * number);
  if (how == "KiB") return number_text(number / 1024.0);
  if (how.ends_with('f')) return fmt::format(fmt::runtime(fmt::format("{{:{}}}", how)), number);
  return number_text(number, how.empty() ? 4 : how.front() - '0');
}

/// The text, and whether everything in it was there.
std::pair<std::string, bool> fill(std::string_view text, const Json& values) {
  std::string out;
  bool is_whole = true;
  for (std::size_t open = text.find('{'); open != text.npos; open = text.find('{')) {
    const std::size_t close = text.find('}', open);
    const std::string_view field = text.substr(open + 1, close - open - 1);
    const std::string_view key = field.substr(0, field.find(':'));
    const std::string_view how = key == field ? "" : field.substr(key.size() + 1);
    const auto found = values.find(key);
    const auto filled = found == values.end() ? std::nullopt : value_text(*found, how);
    is_whole = is_whole && filled;
    out += text.substr(0, open);
    out += filled.value_or("-");
    text.remove_prefix(close + 1);
  }
  return {out += text, is_whole};
}

}  // namespace

std::string filled_in(std::string_view text, const Json& values) {
  return fill(text, values).first;
}

std::string filled_table(const Json& rows, std::span<const FilledColumn> columns) {
  TextTable table(mapped<std::string>(columns, &FilledColumn::header));
  for (const Json& row : rows) {
    std::vector<std::string> cells;
    for (const FilledColumn& column : columns) {
      const bool may_lack = column.cell.ends_with('?');
      auto [text, is_whole] = fill(column.cell.substr(0, column.cell.size() - may_lack), row);
      cells.push_back(is_whole ? std::move(text) : may_lack ? "" : "-");
    }
    table.add_row(std::move(cells));
  }
  return table.text();
}

}  // namespace kvscope::cli

// Tables from text: CSV and JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "analysis/base/table.hpp"

namespace kvscope {

/// A header line, then one line per row, quoted as in RFC 4180; empty lines are skipped. A column
/// whose cells are all numbers or empty is one of numbers, any other one of words; so is a column
/// of hashes, whatever they look like. `where` names the table. Throws FormatError naming the line.
Table table_from_csv(std::string_view text, const std::string& where);

/// A list of flat objects, or an object that holds one under "rows" or "layers" (also inside
/// "summary"). null is empty, true and false are 1 and 0; nested values are left out. Throws
/// FormatError.
Table table_from_json(const nlohmann::json& json, const std::string& where);

}  // namespace kvscope

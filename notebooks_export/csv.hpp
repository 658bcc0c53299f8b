// Tables as CSV: what a notebook or a spreadsheet reads without a library of ours.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace kvscope {

/// One field as RFC 4180 wants it: quoted only if it holds a comma, a quote or a line break.
std::string csv_field(std::string_view text);

/// `rows`: an array of flat objects. One header line with every key in order of first appearance,
/// then one line per object; a missing key, null, NaN or infinity is an empty field; nested values
/// are left out. Throws ConfigError if `rows` is not an array of objects.
std::string csv_from_rows(const nlohmann::ordered_json& rows);

}  // namespace kvscope

// Reading what users hand in: whole files up to a limit, lists of numbers, ranges.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/tokenizer.hpp"
#include "core/trace/info.hpp"

namespace kvscope::cli {

/// The bytes of `file` ("-" is standard input). Throws IoError if it cannot be read or is longer
/// than max_bytes.
std::string read_whole_file(const std::filesystem::path& file, std::size_t max_bytes);

/// Token ids as a JSON array, as an object with "ids", or as numbers separated by blanks, commas
/// and line breaks. `where` names the source in messages. Throws FormatError at the first thing
/// that is not an id.
std::vector<TokenId> parse_token_ids(std::string_view text, const std::string& where);

/// "0,3-5" to {0, 3, 4, 5}, ascending and without repeats. Throws UsageError for anything else, and
/// for numbers >= 1e6.
std::vector<Index> parse_index_list(std::string_view text, std::string_view option);

/// "A:B" to [A, B). Throws UsageError.
TokenRange parse_token_range(std::string_view text, std::string_view option);

}  // namespace kvscope::cli

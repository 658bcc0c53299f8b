#include "analysis/cli/models/token_ids.hpp"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/number_text.hpp"

namespace kvscope::cli {

namespace {

std::vector<TokenId> ids_from_json(std::string_view text, const std::string& where) {
  const nlohmann::json json = parse_json(text, where);
  const bool has_ids = json.is_object() && json.contains("ids");
  const auto& list = has_ids ? json.at("ids") : json;
  if (!list.is_array())
    throw FormatError("{}: expected an array of token ids, or an object with \"ids\"", where);
  std::vector<TokenId> ids;
  ids.reserve(list.size());
  for (const auto& item : list) {
    if (!item.is_number_integer() || item < 0 || item > std::numeric_limits<TokenId>::max()) {
      throw FormatError("{}: ids[{}] is {}, expected a token id", where, ids.size(),
                        describe(item));
    }
    ids.push_back(item.get<TokenId>());
  }
  return ids;
}

}  // namespace

std::vector<TokenId> parse_token_ids(std::string_view text, const std::string& where) {
  constexpr std::string_view kBlank = " \t\r\n,";
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  if (text[first] == '[' || text[first] == '{') return ids_from_json(text, where);
  std::vector<TokenId> ids;
  for (std::size_t at = text.find_first_not_of(kBlank); at != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(kBlank, at), text.size());
    const std::string_view word = text.substr(at, end - at);
    const auto id = number_from<TokenId>(word);
    if (!id || *id < 0) {
      throw FormatError("{}: entry {} is {}, expected a token id", where, ids.size(),
                        quote(word, 40));
    }
    ids.push_back(*id);
    at = text.find_first_not_of(kBlank, end);
  }
  return ids;
}

}  // namespace kvscope::cli

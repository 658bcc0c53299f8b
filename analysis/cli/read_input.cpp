#include "analysis/cli/read_input.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "analysis/cli/exit_code.hpp"
#include "analysis/cli/output.hpp"
#include "core/base/error.hpp"

namespace kvscope::cli {

namespace {

constexpr Index kMaxListed =
    1'000'000;  // no model has so many layers or heads; keeps "0-9999999999" from allocating

template <class T>
bool parse_all(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

std::vector<TokenId> ids_from_json(std::string_view text, const std::string& where) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) throw FormatError(fmt::format("{}: not valid JSON", where));
  const bool has_ids = json.is_object() && json.contains("ids");
  const auto& list = has_ids ? json.at("ids") : json;
  if (!list.is_array()) {
    throw FormatError(
        fmt::format("{}: expected an array of token ids, or an object with \"ids\"", where));
  }
  std::vector<TokenId> ids;
  ids.reserve(list.size());
  for (const auto& item : list) {
    if (!item.is_number_integer() || item < 0 || item > std::numeric_limits<TokenId>::max()) {
      throw FormatError(fmt::format(
          "{}: ids[{}] is {}, expected a token id", where, ids.size(),
          item.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).substr(0, 40)));
    }
    ids.push_back(item.get<TokenId>());
  }
  return ids;
}

}  // namespace

std::string read_whole_file(const std::filesystem::path& file, std::size_t max_bytes) {
  const bool is_stdin = file == "-";
  const std::string name = is_stdin ? "standard input" : file.string();
  if (std::error_code error; !is_stdin && std::filesystem::is_directory(file, error)) {
    throw IoError(fmt::format("{} is a folder, expected a file", name));
  }
  const auto close = [](std::FILE* f) { return f == stdin ? 0 : std::fclose(f); };
  const std::unique_ptr<std::FILE, decltype(close)> in(
      is_stdin ? stdin : std::fopen(file.c_str(), "rb"), close);
  if (!in) throw IoError(fmt::format("cannot read {}: {}", name, std::strerror(errno)));
  std::string text;
  char buffer[1 << 16];
  while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, in.get())) {
    if (text.size() + n > max_bytes) {
      throw IoError(
          fmt::format("{} is longer than {}", name, bytes_text(static_cast<double>(max_bytes))));
    }
    text.append(buffer, n);
  }
  if (std::ferror(in.get()) != 0)
    throw IoError(fmt::format("cannot read {}: {}", name, std::strerror(errno)));
  return text;
}

std::vector<TokenId> parse_token_ids(std::string_view text, const std::string& where) {
  constexpr std::string_view kBlank = " \t\r\n,";
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  if (text[first] == '[' || text[first] == '{') return ids_from_json(text, where);
  std::vector<TokenId> ids;
  for (std::size_t at = text.find_first_not_of(kBlank); at != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(kBlank, at), text.size());
    const std::string_view word = text.substr(at, end - at);
    TokenId id = 0;
    if (!parse_all(word, id) || id < 0) {
      throw FormatError(fmt::format("{}: entry {} is \"{}\", expected a token id", where,
                                    ids.size(), word.substr(0, 40)));
    }
    ids.push_back(id);
    at = text.find_first_not_of(kBlank, end);
  }
  return ids;
}

std::vector<Index> parse_index_list(std::string_view text, std::string_view option) {
  const auto fail = [&](std::string_view part) {
    throw UsageError(
        fmt::format("--{}: expected numbers and ranges like 0,3-5, found \"{}\"", option, part));
  };
  std::vector<Index> list;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string_view part = text.substr(at, end - at);
    const std::size_t dash = part.find('-');
    Index first = 0;
    if (!parse_all(part.substr(0, dash), first)) fail(part);
    Index last = first;
    if (dash != std::string_view::npos && !parse_all(part.substr(dash + 1), last)) fail(part);
    if (first < 0 || last < first || last >= kMaxListed) fail(part);
    for (Index i = first; i <= last; ++i) list.push_back(i);
    at = end + 1;
  }
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
  return list;
}

TokenRange parse_token_range(std::string_view text, std::string_view option) {
  const std::size_t colon = text.find(':');
  TokenRange range;
  if (colon == std::string_view::npos || !parse_all(text.substr(0, colon), range.begin) ||
      !parse_all(text.substr(colon + 1), range.end) || range.begin < 0 ||
      range.end <= range.begin) {
    throw UsageError(
        fmt::format("--{}: expected positions A:B with A < B, found \"{}\"", option, text));
  }
  return range;
}

}  // namespace kvscope::cli

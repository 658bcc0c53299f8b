#include "gui/model/session/bookmarks.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace kvscope::gui {

using BookmarkJson = nlohmann::ordered_json;

namespace {

/// A whole number of at least 0; empty if there is none.
std::optional<Index> place_in(const BookmarkJson& json, const char* key) {
  if (!json.contains(key) || !json[key].is_number_integer()) return std::nullopt;
  const auto value = json[key].get<Index>();
  return value >= 0 ? std::optional(value) : std::nullopt;
}

std::string words_in(const BookmarkJson& json, const char* key) {
  return json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : "";
}

}  // namespace

std::string Bookmark::words() const {
  return fmt::format("layer {}, head {}, query {}{}", layer, q_head, query,
                     key ? fmt::format(", key {}", *key) : std::string());
}

BookmarkJson to_json(const std::vector<Bookmark>& bookmarks) {
  BookmarkJson json = BookmarkJson::array();
  for (const Bookmark& mark : bookmarks) {
    json.push_back({{"trace", mark.trace},
                    {"name", mark.name},
                    {"layer", mark.layer},
                    {"q_head", mark.q_head},
                    {"query", mark.query},
                    {"key", mark.key ? BookmarkJson(*mark.key) : BookmarkJson(nullptr)},
                    {"selector", mark.selector},
                    {"budget", mark.budget},
                    {"note", mark.note}});
  }
  return json;
}

std::vector<Bookmark> bookmarks_from_json(const BookmarkJson& json) {
  std::vector<Bookmark> bookmarks;
  if (!json.is_array()) return bookmarks;
  for (const BookmarkJson& one : json) {
    if (!one.is_object()) continue;
    const auto layer = place_in(one, "layer");
    const auto head = place_in(one, "q_head");
    const auto query = place_in(one, "query");
    if (!layer || !head || !query) continue;
    bookmarks.push_back({words_in(one, "trace"), words_in(one, "name"), *layer, *head, *query,
                         place_in(one, "key"), words_in(one, "selector"),
                         place_in(one, "budget").value_or(0), words_in(one, "note")});
  }
  return bookmarks;
}

}  // namespace kvscope::gui

#include "gui/model/session/bookmarks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "gui/model/session/session.hpp"

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

void Session::add_bookmark(std::string note) {
  const auto open = document();
  if (!open) return;
  const Selection& s = state_.selection;
  bookmarks_.push_back({open->info().uuid, open->name(), s.layer, s.q_head, s.query, s.key,
                        s.selector.text(), state_.parameters.budget, std::move(note)});
  ++revision_;
}

void Session::set_note(std::size_t bookmark, std::string note) {
  if (bookmark >= bookmarks_.size() || bookmarks_[bookmark].note == note) return;
  bookmarks_[bookmark].note = std::move(note);
  ++revision_;
}

void Session::remove_bookmark(std::size_t bookmark) {
  if (bookmark >= bookmarks_.size()) return;
  played_.reset();
  bookmarks_.erase(bookmarks_.begin() + static_cast<std::ptrdiff_t>(bookmark));
  ++revision_;
}

void Session::go_to(std::size_t bookmark) {
  if (bookmark >= bookmarks_.size()) return;
  const Bookmark mark = bookmarks_[bookmark];
  played_ = bookmark;
  const auto trace = std::ranges::find_if(documents_, [&](const auto& open) {
    if (!mark.trace.empty()) return open->info().uuid == mark.trace;
    // Made while it was recorded, and saved so: a trace gets its uuid with its name, at the end.
    return open->name() == mark.name || open->name() + ".part" == mark.name;
  });
  if (trace == documents_.end()) {
    notify(fmt::format("The bookmark {} is of {}, which is not open: open it first.", mark.words(),
                       mark.name),
           /*is_error=*/false);
    return;
  }
  MethodSpec selector = state_.selection.selector;
  try {
    if (!mark.selector.empty()) selector = mark.selector;
  } catch (const Error& e) {  // a method of another build
    notify(e.what(), /*is_error=*/false);
  }
  change("bookmark", [&](Snapshot& state) {
    Selection& s = state.selection;
    s.trace = trace - documents_.begin();
    s.layer = mark.layer;
    s.q_head = mark.q_head;
    s.query = mark.query;
    s.key = mark.key;
    s.selector = selector;
    if (mark.budget > 0) state.parameters.budget = mark.budget;
    keep_within(state.parameters, trace->get());  // a session file may say anything
  });
}

void Session::step_bookmark(int by) {
  if (bookmarks_.empty()) return;
  const auto last = static_cast<int>(bookmarks_.size()) - 1;
  const int from = played_ ? static_cast<int>(*played_) : by > 0 ? -1 : last + 1;
  go_to(static_cast<std::size_t>(std::clamp(from + by, 0, last)));
}

std::vector<Bookmark> Session::bookmarks_here() const {
  std::vector<Bookmark> here;
  const auto open = document();
  if (!open) return here;
  for (const Bookmark& mark : bookmarks_) {
    const bool is_of_trace = mark.trace.empty()
                                 ? mark.name == open->name() || mark.name == open->name() + ".part"
                                 : mark.trace == open->info().uuid;
    const bool is_seen = is_of_trace && mark.layer == state_.selection.layer &&
                         mark.q_head == state_.selection.q_head;
    if (is_seen) here.push_back(mark);
  }
  return here;
}

void Session::name_bookmarks(const Document& before, const Document& now) {
  for (Bookmark& mark : bookmarks_) {
    const bool is_its = mark.trace == before.info().uuid && mark.name == before.name();
    if (!is_its) continue;
    mark.trace = now.info().uuid;
    mark.name = now.name();
  }
}

}  // namespace kvscope::gui

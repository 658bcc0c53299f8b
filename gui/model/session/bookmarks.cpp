#include "gui/model/session/bookmarks.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/fields_json.hpp"
#include "core/base/json.hpp"
#include "gui/model/session/session.hpp"

namespace kvscope::gui {

std::string Bookmark::words() const {
  return fmt::format("layer {}, head {}, query {}{}", layer, q_head, query,
                     key ? fmt::format(", key {}", *key) : std::string());
}

Json to_json(const std::vector<Bookmark>& bookmarks) {
  Json json = Json::array();
  for (const Bookmark& mark : bookmarks) {
    json.push_back(fields_to_json(mark));
    json.back()["key"] = or_null(mark.key);
  }
  return json;
}

std::vector<Bookmark> bookmarks_from_json(const Json& json) {
  std::vector<Bookmark> bookmarks;
  if (!json.is_array()) return bookmarks;
  for (const Json& one : json) {
    Bookmark mark;
    try {
      fields_from_json(one, mark);
      check_fields(mark);
    } catch (const ConfigError&) {
      continue;
    }
    if (!one.contains("query")) continue;
    const Json key = one.value("key", Json());
    if (key.is_number_integer() && key.get<Index>() >= 0) mark.key = key.get<Index>();
    bookmarks.push_back(std::move(mark));
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

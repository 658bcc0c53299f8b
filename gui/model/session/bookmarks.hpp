// Bookmarks: places of a trace with a note, kept in the session file.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gui/model/session/selection.hpp"

namespace kvscope::gui {

/// A selected head, query and key under a method, and what somebody noted about it.
struct Bookmark {
  std::string trace = option(trace, "trace", "", "");  // uuid
  std::string name = option(name, "name", "", "");     // of its file, to be told apart
  Index layer = option(layer, "layer", 0, "", at_least(0));
  Index q_head = option(q_head, "q-head", 0, "", at_least(0));
  Index query = option(query, "query", 0, "", at_least(0));
  std::optional<Index> key;
  std::string selector = option(selector, "selector", "", "");
  Index budget = option(budget, "budget", 0, "", at_least(0));
  std::string note = option(note, "note", "", "");
  /// "layer 3, head 5, query 400, key 20".
  std::string words() const;
  bool operator==(const Bookmark&) const = default;
};

nlohmann::ordered_json to_json(const std::vector<Bookmark>& bookmarks);
/// Leaves out what is no bookmark: a newer version wrote it.
std::vector<Bookmark> bookmarks_from_json(const nlohmann::ordered_json& json);

}  // namespace kvscope::gui

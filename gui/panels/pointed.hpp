// What lies under the mouse, in whichever panel: there is one mouse, and every panel marks it.
#pragma once

#include <optional>
#include <string>

#include "core/base/index.hpp"
#include "gui/model/results/table_view.hpp"

namespace kvscope::gui {

struct Pointed {
  std::optional<Index> query{};
  TokenRange keys{};  // a key, or those of a page; empty: none
  std::optional<Index> layer{};
  std::optional<Index> q_head{};
  std::string method{};
  std::optional<double> budget{};  // the method's: tokens, or a share

  static Pointed at(const RowTarget& target);
  static Pointed at_key(Index key) { return {.keys = {key, key + 1}}; }
  static Pointed at_head(Index layer, Index q_head) { return {.layer = layer, .q_head = q_head}; }

  bool has_key(Index key, Index n_keys = 1) const {
    return key < keys.end && keys.begin < key + n_keys;
  }
  bool is_of_heads() const { return layer || q_head; }
  /// They have a query, a key, a head or a method in common.
  bool meets(const Pointed& other) const;
  bool operator==(const Pointed&) const = default;
};

/// In this frame.
void point_at(const Pointed& thing);
/// In the last one.
const Pointed& pointed();
/// Ends the frame; true if something else is under the mouse than before, which is not shown yet.
bool turn_pointed();

/// The last item, a line of a list or of a table, is about this: the mouse over it points there,
/// and it is marked while the mouse points there elsewhere.
void pointing_line(const Pointed& about);

}  // namespace kvscope::gui

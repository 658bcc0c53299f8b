#include "gui/model/session/selection.hpp"

#include <algorithm>
#include <cstdlib>

namespace kvscope::gui {

namespace {

constexpr auto kOneGesture = std::chrono::milliseconds(700);
constexpr std::size_t kMostSteps = 500;

}  // namespace

Index nearest(const std::vector<Index>& recorded, Index wanted) {
  const auto best =
      std::ranges::min_element(recorded, {}, [&](Index index) { return std::abs(index - wanted); });
  return best == recorded.end() ? wanted : *best;
}

void History::note(const Snapshot& before, std::string_view origin, Clock::time_point now) {
  future_.clear();
  const bool same_gesture =
      !past_.empty() && !origin.empty() && origin == origin_ && now - last_ < kOneGesture;
  last_ = now;
  origin_ = origin;
  if (same_gesture) return;
  if (past_.size() == kMostSteps) past_.erase(past_.begin());
  past_.push_back(before);
}

Snapshot History::undo(const Snapshot& now_at) {
  Snapshot to = past_.back();
  past_.pop_back();
  future_.push_back(now_at);
  origin_.clear();
  return to;
}

Snapshot History::redo(const Snapshot& now_at) {
  Snapshot to = future_.back();
  future_.pop_back();
  past_.push_back(now_at);
  origin_.clear();
  return to;
}

Field within(const Field& field, const TraceInfo& info) {
  const bool is_layers = field.name == "dense-layers";
  const bool is_tokens = field.name == "budget" || field.name == "chunk" ||
                         field.name == "page-size" || field.name == "n-queries";
  if (!is_layers && !is_tokens) return field;
  const auto most = static_cast<double>(is_layers ? info.n_layers : info.n_tokens);
  return {field.name, field.help, field.min, std::max(field.min, std::min(field.max, most))};
}

Selection clamped(Selection selection, const TraceInfo& info) {
  selection.layer = nearest(info.layers, selection.layer);
  selection.q_head = nearest(info.q_heads, selection.q_head);
  const Index last = std::max(info.rows.begin, info.rows.end - 1);
  selection.query = std::clamp(selection.query, info.rows.begin, last);
  // A key beyond the query is none, and so is one that another trace had and this one has not.
  if (selection.key) selection.key = std::max<Index>(0, *selection.key);
  if (selection.key && *selection.key > selection.query) selection.key.reset();
  return selection;
}

}  // namespace kvscope::gui

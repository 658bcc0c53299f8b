#include "notebooks_export/story_step_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/escape.hpp"
#include "core/base/number_text.hpp"

namespace kvscope {

using Json = nlohmann::ordered_json;

Json pair_json(TokenRange range) {
  return Json::array({range.begin, range.end});
}

Json mark_json(const StoryMark& mark) {
  const Json label = clean_text(mark.label);
  switch (mark.kind) {
    case StoryMark::Kind::box:
      return {{"kind", "box"},
              {"queries", pair_json(mark.queries)},
              {"keys", pair_json(mark.keys)},
              {"label", label}};
    case StoryMark::Kind::arrow:
      return {{"kind", "arrow"},
              {"from", {mark.from[0], mark.from[1]}},
              {"to", {mark.to[0], mark.to[1]}},
              {"label", label}};
    case StoryMark::Kind::words:
      break;
  }
  return {{"kind", "words"},
          {"words", pair_json(mark.words)},
          {"arrow", mark.at ? pair_json(*mark.at) : Json(nullptr)},
          {"label", label}};
}

Json fold_json(const StoryView& view) {
  constexpr Index kAround = 24;
  if (!view.queries || !view.keys) return nullptr;
  const TokenRange between{view.keys->end + kAround, view.queries->begin - kAround};
  return between.size() > 2 * kAround ? pair_json(between) : Json(nullptr);
}

std::string alt_words(const PlannedMap& map) {
  return fmt::format(
      "Attention map of layer {}, query head {}: queries {} to {} run downwards, keys {} to {} to "
      "the right.",
      map.layer, map.head, map.grid.queries.begin, map.grid.queries.end - 1, map.grid.keys.begin,
      map.grid.keys.end - 1);
}

std::string heaviest_words(const PlannedMap& map, const std::vector<float>& weights) {
  std::size_t best = weights.size();
  for (std::size_t at = 0; at < weights.size(); ++at) {
    if (std::isnan(weights[at])) continue;
    if (best == weights.size() || weights[at] > weights[best]) best = at;
  }
  if (best == weights.size()) return "";
  const auto cols = static_cast<std::size_t>(map.grid.cols());
  const auto place = [&](std::size_t cell, TokenRange of) {
    const Index first = of.begin + static_cast<Index>(cell) * map.grid.block;
    const Index last = std::min(of.end, first + map.grid.block) - 1;
    return last > first ? fmt::format("{} to {}", first, last) : fmt::format("{}", first);
  };
  return fmt::format(" The heaviest {}, {}, is that of query {} for key {}.",
                     map.grid.block > 1 ? "cell" : "weight",
                     kvscope::number_text(static_cast<double>(weights[best])),
                     place(best / cols, map.grid.queries), place(best % cols, map.grid.keys));
}

}  // namespace kvscope

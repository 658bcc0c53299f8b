// What is said beside a text: what shades, lines, dots and strokes mean, what is kept and lost, and
// all that is known of the token under the mouse.
#pragma once

#include <optional>

#include "gui/panels/panel.hpp"
#include "gui/panels/token_feed.hpp"

namespace kvscope::gui {

struct LegendWish {
  bool compare = false;   // two methods
  bool losses = false;    // they shade the text
  bool is_strip = false;  // in one line
};

/// The token of a worst passage that was chosen, which is selected as the query.
std::optional<Index> draw_token_legend(PanelContext& context, const TokenFeed& feed,
                                       const Document& document, const LegendWish& wish);

/// Lines of the tooltip. `shown`: the losses that shade the text; null: they do not.
HoverLines token_details(const PanelContext& context, const TokenFeed& feed,
                         const Document& document, Index pos, const TokenLosses* shown);

}  // namespace kvscope::gui

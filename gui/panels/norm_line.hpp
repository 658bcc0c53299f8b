// Norms of one head over positions, as a line as high as a line of text.
#pragma once

#include "gui/model/traces/data_check.hpp"
#include "gui/panels/panel.hpp"

namespace kvscope::gui {

/// `name` stands before the line, the mean behind it; `kind` of head is "query" or "KV".
void draw_norm_line(const PanelContext& context, const char* name, const char* kind,
                    const HeadNorms& norms);

}  // namespace kvscope::gui

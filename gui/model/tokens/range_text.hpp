// The running text of neighbouring tokens on one line, cut where it would be too long for a
// tooltip.
#pragma once

#include <string>

#include "gui/model/traces/document.hpp"

namespace kvscope::gui {

/// Texts of the tokens in the range as one line; beyond about `most` bytes whole tokens are left
/// out and "…" stands for them. Without recorded text: the ids.
std::string range_text(const Document& document, TokenRange range, std::size_t most);

}  // namespace kvscope::gui

#include "gui/model/tokens/range_text.hpp"

namespace kvscope::gui {

std::string range_text(const Document& document, TokenRange range, std::size_t most) {
  std::string text;
  for (Index pos = range.begin; pos < range.end; ++pos) {
    const std::string token = document.token_text(pos);
    if (!text.empty() && text.size() + token.size() > most) return text + "…";
    if (!document.has_text() && !text.empty()) text += ", ";
    text += token;
  }
  return text;
}

}  // namespace kvscope::gui

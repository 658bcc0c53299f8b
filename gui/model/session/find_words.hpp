// Finding by typed words, as the palette and the list of methods do: all of them, in any case and
// order.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvscope::gui {

/// ASCII letters in lower case.
std::string lowered(std::string_view text);
/// The words of what was typed, in lower case; spaces, commas and equals signs separate them.
std::vector<std::string> lower_words(std::string_view typed);
/// True if the text, which is in lower case, holds each of the words.
bool holds_all(const std::string& text, const std::vector<std::string>& words);

}  // namespace kvscope::gui

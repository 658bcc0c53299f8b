// Names of scripts, for a sentence on what of a text is not drawn as it is written.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace kvscope::gui {

/// What of these characters (UTF-8, each once) cannot be read as it should be, and what helps;
/// empty: nothing. `lacks`: no font has it.
std::string remark_on_scripts(std::string_view alphabet,
                              const std::function<bool(char32_t)>& lacks);

}  // namespace kvscope::gui

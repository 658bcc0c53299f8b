// Names of scripts, for a sentence on what of a text is not drawn as it is written.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace kvscope::gui {

/// The script of a letter whose letters change their shape or place beside others, or for which
/// systems have fonts of their own ("Thai"); empty: another one.
std::string_view script_of(char32_t c);

/// What of these characters (UTF-8, each once) cannot be read as it should be, and what helps;
/// empty: nothing. `lacks`: no font has it.
std::string remark_on_scripts(std::string_view alphabet,
                              const std::function<bool(char32_t)>& lacks);

}  // namespace kvscope::gui

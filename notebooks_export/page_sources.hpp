// Scripts and styles of HTML pages, built into the program from notebooks_export/page.
#pragma once

#include <string_view>

namespace kvscope {

/// The text of a file of notebooks_export/page. Throws ConfigError if no such file was built in.
std::string_view page_source(std::string_view file);

}  // namespace kvscope

// Telling saved sessions from results, which may be JSON too.
#pragma once

#include <filesystem>

namespace kvscope::gui {

/// A saved session, or the manifest of a view, which holds one. False for what cannot be read.
bool is_session_file(const std::filesystem::path& file);

}  // namespace kvscope::gui

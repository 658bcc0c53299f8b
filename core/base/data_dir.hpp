// Where the files that come with kvscope lie: the embedded model pair and its text.
#pragma once

#include <filesystem>

namespace kvscope {

/// Checkpoint folders of the embedded pair, and the text (about 100,000 tokens). Throw as
/// samples_dir().
std::filesystem::path embedded_verifier();
std::filesystem::path embedded_draft();
std::filesystem::path embedded_text();

}  // namespace kvscope

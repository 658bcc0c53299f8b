// Where the files that come with kvscope lie: the embedded model pair and its text.
#pragma once

#include <filesystem>

namespace kvscope {

/// The folder that holds verifier/, draft/ and texts/. Tried in this order: the environment
/// variable KVSCOPE_DATA (if set, it decides alone), share/kvscope/samples beside the folder of the
/// running program, and the source tree that the library was built from. Throws IoError with the
/// places tried if none has them.
std::filesystem::path samples_dir();

/// Checkpoint folders of the embedded pair, and the text (about 100,000 tokens). Throw as
/// samples_dir().
std::filesystem::path embedded_verifier();
std::filesystem::path embedded_draft();
std::filesystem::path embedded_text();

}  // namespace kvscope

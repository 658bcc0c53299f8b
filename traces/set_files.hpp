// The files that a trace set consists of, and how a new set takes the place of an older one.
//
// Several names cannot change at once. So the parts of a new set are made whole before any of them
// gets its name; where a name was an older set's part, that set's manifest goes first: a manifest
// never stands for parts of two recordings. The new manifest comes last, and after it whatever the
// older set had under other names goes away.
#pragma once

#include <filesystem>

#include "core/base/vocabulary.hpp"
#include "traces/trace_set.hpp"

namespace kvscope {

/// The file that has a part's data. While a set is recorded that is FILE.part; its parts get their
/// names one after the other, and until then an older set's part may have the name.
std::filesystem::path file_of_part(const std::filesystem::path& manifest, const SetManifest& set,
                                   const SetPart& part);

/// The manifest and the files of its parts; only the manifest if it cannot be read.
std::vector<std::filesystem::path> files_of_set(const std::filesystem::path& manifest);

/// The same files, and behind each trace set its parts: what a command reads that is given them.
std::vector<std::filesystem::path> with_set_parts(std::span<const std::filesystem::path> files);

/// Writes the manifest `out` around `name_parts`, which gives the parts, whole files by now, their
/// names beside it. Files in `keep` are not removed. Throws what `name_parts` throws, and IoError.
void publish_set(const std::filesystem::path& out, const SetManifest& manifest, bool overwrite,
                 std::span<const std::filesystem::path> keep,
                 const std::function<void()>& name_parts);

}  // namespace kvscope

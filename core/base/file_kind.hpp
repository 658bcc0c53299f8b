// What a name on the disk means: which kind of file lies there, told by its first bytes, and
// whether what is about to be written may take its place.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace kvscope {

enum class FileKind {
  none,   // no regular file is there
  empty,  // a file without bytes: everything may replace it
  trace,
  result,
  journal,   // checked lines: of a run, a study's store, a unit
  own_json,  // with a field that files of kvscope begin with
  session,   // of the window
  manifest,  // of a figure, or of a view of the window
  json,
  notebook,
  csv,
  markdown,
  tex,
  svg,
  html,
  pdf,
  png,
  hdf5,  // neither trace nor result
  gguf,
  safetensors,
  text,
  other,
};

/// The kind of the file behind a name, links followed. Reads at most 1 MiB. Throws IoError if it
/// cannot be read.
FileKind kind_of_file(const std::filesystem::path& file);

/// "a GGUF model", "a trace of kvscope": for sentences.
std::string_view words_of(FileKind kind);

/// What a command writes under a name that a user chose: by its ending, `text` for others.
FileKind kind_of_name(const std::filesystem::path& name);

/// Throws IoError if a file of another kind than `written` lies at `out`, saying which and, for
/// inputs of other options, which option reads it. Without `written`, by the name's ending, and
/// any text may take the place of a text where the ending says nothing.
void refuse_other_kind(const std::filesystem::path& out, std::optional<FileKind> written);

}  // namespace kvscope

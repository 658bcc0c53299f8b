#include "traces/set_files.hpp"

#include <algorithm>
#include <optional>
#include <string>

#include "core/base/error.hpp"
#include "core/base/new_file.hpp"

namespace kvscope {

namespace {

namespace fs = std::filesystem;

/// The parts that a set named `out` has under the names that a recorder gives them. A link has
/// none: what takes its place leaves the set behind it alone.
std::vector<SetPart> parts_of_older(const fs::path& out) {
  std::error_code error;
  if (!fs::exists(out, error) || fs::is_symlink(out, error)) return {};
  try {
    SetManifest older = read_set_manifest(out);
    const std::string stem = out.stem().string() + ".layer";
    std::erase_if(older.parts, [&](const SetPart& part) { return !part.file.starts_with(stem); });
    return std::move(older.parts);
  } catch (const Error&) {
    return {};  // it is no manifest
  }
}

bool has_file(const SetManifest& manifest, const std::string& file) {
  return std::ranges::find(manifest.parts, file, &SetPart::file) != manifest.parts.end();
}

}  // namespace

std::vector<fs::path> files_of_set(const fs::path& manifest) {
  std::vector<fs::path> files = {manifest};
  try {
    const fs::path folder = set_folder(manifest);
    for (const SetPart& part : read_set_manifest(manifest).parts)
      files.push_back(folder / part.file);
  } catch (const Error&) {  // whoever opens it says what is wrong with it
  }
  return files;
}

std::vector<fs::path> with_set_parts(std::span<const fs::path> files) {
  std::vector<fs::path> all;
  for (const fs::path& file : files) {
    const std::vector<fs::path> of_one =
        is_set_path(file) ? files_of_set(file) : std::vector<fs::path>{file};
    all.insert(all.end(), of_one.begin(), of_one.end());
  }
  return all;
}

void publish_set(const fs::path& out, const SetManifest& manifest, bool overwrite,
                 std::span<const fs::path> keep, const std::function<void()>& name_parts) {
  const fs::path folder = out.parent_path();
  const std::vector<SetPart> older = parts_of_older(out);
  NewFile text(out, overwrite);
  text.write(set_manifest_text(manifest));
  const bool shares_names = std::ranges::any_of(
      older, [&](const SetPart& part) { return has_file(manifest, part.file); });
  if (shares_names) {
    remove_quietly(out);
    sync_folder_of(out);
  }
  name_parts();
  text.publish();
  for (const SetPart& part : older) {
    const fs::path file = folder / part.file;
    std::error_code error;
    const bool is_the_part = fs::is_regular_file(file, error) &&
                             static_cast<std::int64_t>(fs::file_size(file, error)) == part.bytes;
    if (is_the_part && !has_file(manifest, part.file) && !input_behind(file, keep))
      remove_quietly(file);
  }
}

}  // namespace kvscope

#include "traces/set_files.hpp"

#include <sys/stat.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/new_file.hpp"
#include "core/base/read_files.hpp"
#include "traces/raw_file.hpp"

namespace kvscope {

namespace {

namespace fs = std::filesystem;

/// The parts that a set named `out` has under the names that a recorder gives them. A link has
/// none: what takes its place leaves the set behind it alone.
std::vector<SetPart> parts_of_older(const fs::path& out) {
  const OwnFiles replaced;
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

/// A manifest that goes away while the parts of a new set take over names of its own. Where the
/// first of them fails already, the older set is as whole as before.
class OlderManifest {
 public:
  /// Remembers nothing if there are no parts.
  OlderManifest(fs::path out, const std::vector<SetPart>& parts) : out_(std::move(out)) {
    if (parts.empty()) return;
    const OwnFiles replaced;
    text_ = set_manifest_text(read_set_manifest(out_));
    for (const SetPart& part : parts) parts_.push_back(look(out_.parent_path() / part.file));
  }
  /// Makes it again if no part has changed.
  void put_back() const {
    if (parts_.empty()) return;
    const bool is_whole = std::ranges::all_of(parts_, [](const Look& then) {
      const Look now = look(then.file);
      return now.inode == then.inode && now.device == then.device;
    });
    if (!is_whole) return;
    try {
      write_new_file(out_, text_, /*overwrite=*/false);
    } catch (const Error&) {  // the error that is on its way says what happened
    }
  }

 private:
  struct Look {
    fs::path file;
    ino_t inode = 0;
    dev_t device = 0;
  };
  static Look look(const fs::path& file) {
    struct stat found {};
    if (::stat(file.c_str(), &found) != 0) return {file};
    return {file, found.st_ino, found.st_dev};
  }

  fs::path out_;
  std::string text_;
  std::vector<Look> parts_;
};

}  // namespace

fs::path file_of_part(const fs::path& manifest, const SetManifest& set, const SetPart& part) {
  const fs::path named = set_folder(manifest) / part.file;
  const bool is_recorded = set.status == TraceStatus::recording || is_part_path(manifest);
  std::error_code error;
  return is_recorded && fs::exists(part_path(named), error) ? part_path(named) : named;
}

std::vector<fs::path> files_of_set(const fs::path& manifest) {
  const OwnFiles looked_at;  // for the names alone
  std::vector<fs::path> files = {manifest};
  try {
    const SetManifest set = read_set_manifest(manifest);
    for (const SetPart& part : set.parts) files.push_back(file_of_part(manifest, set, part));
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
  const OlderManifest before(out, shares_names ? older : std::vector<SetPart>{});
  if (shares_names) {
    remove_quietly(out);
    sync_folder_of(out);
  }
  try {
    name_parts();
  } catch (...) {
    before.put_back();
    throw;
  }
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

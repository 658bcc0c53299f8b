#include "gui/model/traces/folder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace kvscope::gui {

namespace fs = std::filesystem;

FolderListing list_folder(const fs::path& folder, const std::vector<std::string>& extensions,
                          FolderOrder order) {
  FolderListing listing;
  std::error_code error;
  listing.folder = fs::weakly_canonical(fs::absolute(folder, error), error);
  if (error) listing.folder = folder;
  fs::directory_iterator entries(listing.folder, fs::directory_options::skip_permission_denied,
                                 error);
  if (error) {
    listing.error = fmt::format("cannot list {}: {}", listing.folder.string(), error.message());
    return listing;
  }
  for (const auto end = fs::directory_iterator(); entries != end; entries.increment(error)) {
    if (error) break;
    FolderEntry entry;
    entry.name = entries->path().filename().string();
    if (entry.name.starts_with(".")) continue;
    std::error_code ignored;
    entry.is_folder = entries->is_directory(ignored);
    const auto extension = entries->path().extension().string();
    const bool listed =
        extensions.empty() || std::ranges::find(extensions, extension) != extensions.end();
    if (!entry.is_folder && !listed) continue;
    if (!entry.is_folder) {
      const auto size = entries->file_size(ignored);
      entry.bytes = ignored ? 0 : size;
    }
    const auto written = entries->last_write_time(ignored);
    if (!ignored) entry.written = written;
    listing.entries.push_back(std::move(entry));
  }
  std::ranges::sort(listing.entries, [&](const auto& a, const auto& b) {
    if (a.is_folder != b.is_folder) return a.is_folder;
    if (order == FolderOrder::newest_first && a.written != b.written) return a.written > b.written;
    return a.name < b.name;
  });
  return listing;
}

}  // namespace kvscope::gui

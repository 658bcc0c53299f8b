// What lies in a folder, for the open dialog: folders first, then the files that the explorer can
// open.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace kvscope::gui {

struct FolderEntry {
  std::string name;
  bool is_folder = false;
  std::uintmax_t bytes = 0;  // files only
  std::filesystem::file_time_type written;
};

/// Folders come first in both orders.
enum class FolderOrder { by_name, newest_first };

struct FolderListing {
  std::filesystem::path folder;  // absolute
  std::vector<FolderEntry> entries;
  std::string error;  // a sentence; the entries are empty then
};

/// Hidden entries are left out. `extensions`: those of files that are listed (".h5"); all if empty.
FolderListing list_folder(const std::filesystem::path& folder,
                          const std::vector<std::string>& extensions,
                          FolderOrder order = FolderOrder::by_name);

}  // namespace kvscope::gui

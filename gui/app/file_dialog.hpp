// A dialog that chooses files to open or a name to save under.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "gui/panels/panel.hpp"

namespace kvscope::gui {

class FileDialog {
 public:
  enum class Purpose { open, save };
  /// Opens the dialog; `chosen` is called with the file, or with each of several to open. The
  /// suggested name may have a folder; one to save under gets the first of the extensions if it has
  /// none of them.
  void ask(Purpose purpose, std::string title, std::vector<std::string> extensions,
           std::string suggested_name, std::function<void(const std::filesystem::path&)> chosen);
  /// Draws it while it is open.
  void draw(const PanelContext& context);

 private:
  struct Entry {
    std::string name;
    bool is_folder = false;
    std::uintmax_t bytes = 0;  // files only
    std::filesystem::file_time_type written;
  };
  struct Listing {
    std::filesystem::path folder;  // absolute
    std::vector<Entry> entries;    // folders first
    std::string error;             // a sentence; the entries are empty then
  };
  /// Hidden entries and files of other extensions are left out.
  Listing list(const std::filesystem::path& folder) const;
  void go_to(const std::filesystem::path& folder);
  void choose(const std::filesystem::path& file);
  void mark(std::size_t entry);
  std::filesystem::path draw_entries();

  Purpose purpose_ = Purpose::open;
  std::string title_;
  std::vector<std::string> extensions_;
  std::function<void(const std::filesystem::path&)> chosen_;
  Listing listing_;
  std::string typed_;
  std::set<std::string> marked_;  // names of files in the list, where there are several
  bool newest_first_ = false;     // else by name
  std::size_t anchor_ = 0;        // the entry that was clicked last: Shift marks from there
  std::string problem_;
  bool should_open_ = false;
  std::filesystem::path warned_of_;  // that it exists; saving to it again replaces it
  bool wants_keyboard_ = false;
};

}  // namespace kvscope::gui

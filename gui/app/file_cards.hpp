// Files as lists show them before they are opened: a small picture and two lines of words.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "gui/model/jobs/async_queue.hpp"
#include "gui/model/traces/file_card.hpp"
#include "gui/panels/panel.hpp"
#include "gui/render/textures.hpp"

namespace kvscope::gui {

/// The cards of the files that are on screen, made one after another in the background.
class FileCards {
 public:
  /// A file and its state as of now; without one it is not there.
  struct Entry {
    std::filesystem::path file;
    std::optional<FileStamp> stamp;
  };

  /// Once per frame, before the others: the files whose cards are wanted.
  void ask(const PanelContext& context, const std::vector<Entry>& files);
  /// Null until it was made.
  const FileCard* find(const std::filesystem::path& file) const;
  /// Its picture in a rectangle of the window, in proportion; nothing where there is none.
  void draw_picture(const PanelContext& context, const std::filesystem::path& file, ImVec2 low,
                    ImVec2 high);

 private:
  AsyncQueue<FileCard> queue_;
  std::map<std::filesystem::path, std::shared_ptr<const FileCard>> cards_;  // of the last frame
  struct Picture {
    std::shared_ptr<const FileCard> of;
    plot::Ground ground;
    Texture texture;
  };
  std::map<std::filesystem::path, Picture> pictures_;
};

}  // namespace kvscope::gui

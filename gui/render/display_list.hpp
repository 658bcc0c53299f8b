// A drawing kept as vertices, to be shown again and again without drawing it.
#pragma once

#include <imgui.h>

#include <functional>
#include <memory>
#include <vector>

namespace kvscope::gui {

/// Made with its origin at (0, 0); shown anywhere. Holds places in the font atlas and textures: to
/// be made anew when these change.
class DisplayList {
 public:
  DisplayList();
  ~DisplayList();
  DisplayList(DisplayList&&) noexcept;
  DisplayList& operator=(DisplayList&&) noexcept;

  /// Replaces the drawing by what `draw` draws, clipped to `size`. Within a frame.
  void record(ImVec2 size, const std::function<void(ImDrawList&)>& draw);
  /// Appends the drawing to `list` with its origin at `at`, inside the list's clip rectangle.
  void replay(ImDrawList& list, ImVec2 at) const;
  int n_vertices() const;

 private:
  /// A draw command and the vertices it uses.
  struct Piece {
    ImVec4 clip;
    ImTextureID texture;
    int first_index;
    int n_indices;
    int first_vertex;
    int n_vertices;
    int index_base;  // of the vertex that index 0 of this piece means
  };
  std::unique_ptr<ImDrawList> list_;
  std::vector<Piece> pieces_;
};

}  // namespace kvscope::gui

#include "gui/render/display_list.hpp"

#include <algorithm>

namespace kvscope::gui {

DisplayList::DisplayList() = default;
DisplayList::~DisplayList() = default;
DisplayList::DisplayList(DisplayList&&) noexcept = default;
DisplayList& DisplayList::operator=(DisplayList&&) noexcept = default;

void DisplayList::record(ImVec2 size, const std::function<void(ImDrawList&)>& draw) {
  list_ = std::make_unique<ImDrawList>(ImGui::GetDrawListSharedData());
  pieces_.clear();
  list_->_ResetForNewFrame();
  list_->PushTextureID(ImGui::GetIO().Fonts->TexID);
  list_->PushClipRect({0.0F, 0.0F}, size);
  draw(*list_);
  list_->PopClipRect();
  list_->PopTextureID();

  for (const ImDrawCmd& command : list_->CmdBuffer) {
    if (command.ElemCount == 0) continue;
    const auto* first = list_->IdxBuffer.Data + command.IdxOffset;
    const auto [low, high] = std::minmax_element(first, first + command.ElemCount);
    pieces_.push_back({command.ClipRect, command.TextureId, static_cast<int>(command.IdxOffset),
                       static_cast<int>(command.ElemCount),
                       static_cast<int>(command.VtxOffset) + *low, *high - *low + 1, *low});
  }
}

void DisplayList::replay(ImDrawList& list, ImVec2 at) const {
  for (const Piece& piece : pieces_) {
    list.PushTextureID(piece.texture);
    list.PushClipRect({piece.clip.x + at.x, piece.clip.y + at.y},
                      {piece.clip.z + at.x, piece.clip.w + at.y}, /*intersect=*/true);
    list.PrimReserve(piece.n_indices, piece.n_vertices);
    const int shift = static_cast<int>(list._VtxCurrentIdx) - piece.index_base;
    const ImDrawIdx* index = list_->IdxBuffer.Data + piece.first_index;
    for (int i = 0; i < piece.n_indices; ++i) {
      list._IdxWritePtr[i] = static_cast<ImDrawIdx>(index[i] + shift);
    }
    const ImDrawVert* vertex = list_->VtxBuffer.Data + piece.first_vertex;
    for (int i = 0; i < piece.n_vertices; ++i) {
      ImDrawVert moved = vertex[i];
      moved.pos.x += at.x;
      moved.pos.y += at.y;
      list._VtxWritePtr[i] = moved;
    }
    list._IdxWritePtr += piece.n_indices;
    list._VtxWritePtr += piece.n_vertices;
    list._VtxCurrentIdx += static_cast<unsigned>(piece.n_vertices);
    list.PopClipRect();
    list.PopTextureID();
  }
}

int DisplayList::n_vertices() const {
  return list_ ? list_->VtxBuffer.Size : 0;
}

}  // namespace kvscope::gui

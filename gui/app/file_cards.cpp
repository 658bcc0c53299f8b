#include "gui/app/file_cards.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/plot/colour.hpp"
#include "gui/model/session/settings.hpp"

namespace kvscope::gui {

namespace fs = std::filesystem;

namespace {

plot::Image image_of(const FileCard& card, plot::Colour ground) {
  plot::Image image{card.width, card.height, {}};
  image.rgba.reserve(4 * card.shades.size());
  for (const std::uint8_t shade : card.shades) {
    const plot::Colour colour =
        shade == 0 ? ground : plot::colour_at(plot::ColourMap::sequential, (shade - 1) / 254.0);
    image.rgba.insert(image.rgba.end(), {colour.r, colour.g, colour.b, 255});
  }
  return image;
}

}  // namespace

void FileCards::ask(const PanelContext& context, const std::vector<Entry>& files) {
  fs::path folder = samples_folder();
  if (!folder.empty()) folder /= "cards";
  std::vector<QueueItem<FileCard>> items;
  std::vector<fs::path> names;
  for (const auto& [file, stamp] : files) {
    if (!stamp) continue;
    names.push_back(file);
    items.push_back({fmt::format("card/{}/{}/{}", file.string(),
                                 stamp->written.time_since_epoch().count(), stamp->size),
                     {"Looking at " + file.filename().string(), Lane::quick},
                     [file = file, stamp = *stamp, folder](JobContext& job) {
                       return kept_file_card(file, stamp, folder, job);
                     }});
  }
  const QueueView<FileCard> view = queue_.ask(context.session.bench(), items);
  cards_.clear();
  for (std::size_t i = 0; i < names.size(); ++i)
    if (view.values[i]) cards_[names[i]] = view.values[i];
  std::erase_if(pictures_, [&](const auto& picture) { return !cards_.contains(picture.first); });
}

const FileCard* FileCards::find(const fs::path& file) const {
  const auto card = cards_.find(file);
  return card == cards_.end() ? nullptr : card->second.get();
}

void FileCards::draw_picture(const PanelContext& context, const fs::path& file, ImVec2 low,
                             ImVec2 high) {
  const auto card = cards_.find(file);
  if (card == cards_.end() || card->second->shades.empty()) return;
  Picture& picture = pictures_[file];
  if (picture.of != card->second || picture.ground != context.look.ground) {
    picture = {
        card->second, context.look.ground,
        Texture(context.textures, image_of(*card->second, context.look.raised), Filter::linear)};
  }
  const auto width = static_cast<float>(card->second->width);
  const auto height = static_cast<float>(card->second->height);
  const float scale = std::min((high.x - low.x) / width, (high.y - low.y) / height);
  ImGui::GetWindowDrawList()->AddImage(picture.texture.id(), low,
                                       {low.x + scale * width, low.y + scale * height});
}

}  // namespace kvscope::gui

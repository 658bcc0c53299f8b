#include "gui/app/palette.hpp"

#include <imgui.h>
#include <imgui_stdlib.h>

#include <algorithm>
#include <tuple>

#include "core/base/number_text.hpp"
#include "gui/model/session/find_words.hpp"
#include "gui/panels/widgets.hpp"

namespace kvscope::gui {

namespace {

constexpr const char* kPaletteId = "Commands";
constexpr std::size_t kMostShown = 400;
constexpr std::size_t kMostRecent = 12;

}  // namespace

std::vector<const Action*> matching(const std::vector<Action>& actions, std::string_view typed,
                                    const std::vector<std::string>& recent) {
  const std::vector<std::string> words = lower_words(typed);
  // What stands in its own words says more than its explanation; then what begins with it; then
  // what was run lately.
  struct Found {
    std::size_t n_elsewhere = 0;
    bool begins = false;
    std::ptrdiff_t age = 0;
    const Action* action = nullptr;
  };
  std::vector<Found> found;
  for (const Action& action : actions) {
    const std::string own = lowered(action.group + " " + action.words);
    if (!holds_all(own + " " + lowered(action.keys + " " + action.also), words)) continue;
    Found one{0, false, 0, &action};
    for (const std::string& word : words) one.n_elsewhere += own.find(word) == std::string::npos;
    one.begins = !words.empty() && lowered(action.words).starts_with(words.front());
    one.age = std::find(recent.begin(), recent.end(), action.words) - recent.begin();
    found.push_back(one);
  }
  std::stable_sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
    return std::tuple(a.n_elsewhere, !a.begins, a.age) <
           std::tuple(b.n_elsewhere, !b.begins, b.age);
  });
  std::vector<const Action*> ranked;
  for (const Found& one : found) ranked.push_back(one.action);
  return ranked;
}

RowTarget target_of(std::string_view typed) {
  RowTarget to;
  const std::vector<std::string> words = lower_words(typed);
  for (std::size_t i = 0; i + 1 < words.size(); i += 2) {
    const auto value = number_from<Index>(words[i + 1]);
    std::optional<Index>* place = words[i] == "layer"    ? &to.layer
                                  : words[i] == "head"   ? &to.q_head
                                  : words[i] == "query"  ? &to.query
                                  : words[i] == "key"    ? &to.key
                                  : words[i] == "budget" ? &to.budget
                                                         : nullptr;
    if (place == nullptr || !value || *value < 0) return {};
    *place = value;
  }
  return words.size() % 2 == 0 ? to : RowTarget{};
}

void Palette::ask() {
  typed_.clear();
  chosen_ = 0;
  should_open_ = true;
}

void Palette::draw(const Look& look, const std::function<std::vector<Action>()>& actions,
                   const std::function<void(const RowTarget&)>& go_to) {
  if (should_open_) {
    ImGui::OpenPopup(kPaletteId);
    should_open_ = false;
  }
  const ImVec2 room = ImGui::GetIO().DisplaySize;
  const float width = std::min(room.x * 0.94f, look.px(620));
  ImGui::SetNextWindowPos({room.x / 2, room.y * 0.12f}, ImGuiCond_Always, {0.5f, 0.0f});
  ImGui::SetNextWindowSize({width, std::min(room.y * 0.7f, look.px(460))});
  if (!ImGui::BeginPopupModal(kPaletteId, nullptr,
                              ImGuiWindowFlags_NoResize | ImGuiWindowFlags_NoMove |
                                  ImGuiWindowFlags_NoTitleBar | ImGuiWindowFlags_NoNav))
    return;
  if (ImGui::IsWindowAppearing()) ImGui::SetKeyboardFocusHere();
  ImGui::SetNextItemWidth(-1.0f);
  const std::string before = typed_;
  ImGui::InputTextWithHint("##typed", "what to do; or: layer 5 head 3 query 400 key 20", &typed_);
  landmark("palette field");
  if (typed_ != before) chosen_ = 0;
  const std::vector<Action> all = actions();
  const auto found = matching(all, typed_, recent_);
  const RowTarget to = target_of(typed_);
  const std::size_t n_before = to.empty() ? 0 : 1;
  const std::size_t n = n_before + std::min(found.size(), kMostShown);
  const auto pressed = [](ImGuiKey key) { return ImGui::IsKeyPressed(ImGui::GetKeyIndex(key)); };
  bool moved = false;
  if (n > 0 && pressed(ImGuiKey_DownArrow)) chosen_ = (chosen_ + 1) % n, moved = true;
  if (n > 0 && pressed(ImGuiKey_UpArrow)) chosen_ = (chosen_ + n - 1) % n, moved = true;
  if (n > 0 && pressed(ImGuiKey_PageDown)) chosen_ = std::min(chosen_ + 10, n - 1), moved = true;
  if (n > 0 && pressed(ImGuiKey_PageUp))
    chosen_ -= std::min<std::size_t>(chosen_, 10), moved = true;
  chosen_ = n == 0 ? 0 : std::min(chosen_, n - 1);
  bool runs = pressed(ImGuiKey_Enter) || pressed(ImGuiKey_KeyPadEnter);

  ImGui::BeginChild("found", {0, 0}, false, ImGuiWindowFlags_NoNav);
  for (std::size_t i = 0; i < n; ++i) {
    const bool is_place = i < n_before;
    const Action* action = is_place ? nullptr : found[i - n_before];
    ImGui::PushID(static_cast<int>(i));
    const float left = ImGui::GetCursorPosX();
    if (ImGui::Selectable("##action", i == chosen_)) {
      chosen_ = i;
      runs = true;
    }
    if (i == chosen_) landmark("palette choice");
    if (i == chosen_ && moved) ImGui::SetScrollHereY();
    ImGui::SameLine(left);
    ImGui::TextDisabled("%s", is_place ? "Go to" : action->group.c_str());
    ImGui::SameLine(left + look.px(86));
    ImGui::TextUnformatted(is_place ? to.words().c_str() : action->words.c_str());
    if (!is_place && !action->keys.empty()) {
      ImGui::SameLine(ImGui::GetWindowContentRegionMax().x -
                      ImGui::CalcTextSize(action->keys.c_str()).x);
      ImGui::TextDisabled("%s", action->keys.c_str());
    }
    ImGui::PopID();
  }
  if (n == 0) ImGui::TextDisabled("nothing of that name");
  ImGui::EndChild();
  const bool closes = pressed(ImGuiKey_Escape) || (runs && n > 0);
  if (closes) ImGui::CloseCurrentPopup();
  ImGui::EndPopup();
  if (!runs || n == 0) return;
  // What is run may open another dialog, so it comes when this one is closed.
  if (chosen_ < n_before) {
    go_to(to);
  } else {
    const Action chosen = *found[chosen_ - n_before];
    std::erase(recent_, chosen.words);
    recent_.insert(recent_.begin(), chosen.words);
    if (recent_.size() > kMostRecent) recent_.resize(kMostRecent);
    chosen.run();
  }
}

}  // namespace kvscope::gui

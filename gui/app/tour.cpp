#include "gui/app/tour.hpp"

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>

#include "gui/panels/widgets.hpp"

namespace kvscope::gui {

std::array<TourStep, kTourSteps> tour_steps(const TourFacts* facts,
                                            const std::function<std::string(Index pos)>& text_of) {
  const auto percent = [](double share) { return fmt::format("{:.0f} %", 100 * share); };
  std::string best;
  std::string pair;
  if (facts != nullptr && facts->retrieving) {
    const TourFacts::Head& head = *facts->retrieving;
    best = fmt::format(
        " Layer {} head {} retrieves best: {} of its attention goes to what followed an earlier "
        "occurrence of the same token.",
        head.layer, head.q_head, percent(head.share));
    if (facts->pair) {
      pair = fmt::format(" Selected: the query “{}” at {} looks back at “{}” at {} with {}.",
                         text_of(facts->pair->query), facts->pair->query, text_of(facts->pair->key),
                         facts->pair->key, percent(facts->pair->weight));
    }
  }
  if (facts != nullptr && facts->sink) {
    best += fmt::format(" Layer {} head {} has an attention sink: {} lies on the first tokens.",
                        facts->sink->layer, facts->sink->q_head, percent(facts->sink->share));
  }
  return {{
      {"Every head at once",
       "A small attention map and a number for each layer and head: click one to select it." + best,
       "heads", "heads"},
      {"Who looks at whom",
       "One head: a row per query, a column per key, brighter where more weight is." + pair +
           " The wheel zooms, dragging moves, a click selects the pair in every panel.",
       "attention-map", "overview"},
      {"What a method would keep",
       "Choose a sparse method here, and tick \"kept keys\" above the map: what it keeps lies over "
       "what is needed. M steps through the methods.",
       "method", "overview"},
      {"How much is enough",
       "What share of the attention each method keeps, by budget. Tick methods, move the budget at "
       "the left: one slider for all panels.",
       "recall", "budget"},
      {"Do it yourself",
       "Record, analyse, sweep and simulate from here, and copy each run as a command. The keys 1 "
       "to 8 are layouts, Ctrl+K finds everything by its name, Ctrl+E exports a figure, F1 shows "
       "all keys.",
       "open runs", ""},
      {"Why was it dropped?",
       "The heaviest key that the method dropped for this query: its rank, the cut-off, and the "
       "budget that would have kept it. Click another key, or choose another method at the left.",
       "why", "why"},
  }};
}

void Tour::go(std::size_t step) {
  if (step < kTourSteps) {
    step_ = step;
  } else {
    step_.reset();
  }
}

namespace {

constexpr float kCallout = 330.0f;  // points
constexpr float kLeastLines = 7.0f;

/// Everything but the control lies in a light shade; the control has a frame.
void draw_spot(const Look& look, const Area& spot) {
  const ImVec2 size = ImGui::GetIO().DisplaySize;
  // A window of its own, below the words and above all else, through which the mouse acts.
  ImGui::SetNextWindowPos({0, 0});
  ImGui::SetNextWindowSize(size);
  ImGui::Begin("tour shade", nullptr,
               ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoBackground |
                   ImGuiWindowFlags_NoInputs | ImGuiWindowFlags_NoSavedSettings |
                   ImGuiWindowFlags_NoFocusOnAppearing);
  ImDrawList* list = ImGui::GetWindowDrawList();
  const ImU32 shade = packed(plot::with_alpha(look.ink, 0.10));
  const float right = spot.x + spot.w;
  const float bottom = spot.y + spot.h;
  list->AddRectFilled({0, 0}, {size.x, spot.y}, shade);
  list->AddRectFilled({0, bottom}, {size.x, size.y}, shade);
  list->AddRectFilled({0, spot.y}, {spot.x, bottom}, shade);
  list->AddRectFilled({right, spot.y}, {size.x, bottom}, shade);
  list->AddRect({spot.x, spot.y}, {right, bottom}, packed(look.accent), look.px(4), 0, look.px(2));
  ImGui::End();
}

/// Beside the control where there is room, below it, else in its lower right corner.
ImVec2 callout_place(const Look& look, const Area& spot, ImVec2 callout) {
  const ImVec2 size = ImGui::GetIO().DisplaySize;
  const float gap = look.px(12);
  ImVec2 at{spot.x + spot.w + gap, spot.y};
  if (at.x + callout.x > size.x) at = {spot.x, spot.y + spot.h + gap};
  if (at.y + callout.y > size.y && spot.x > callout.x + gap)
    at = {spot.x - callout.x - gap, spot.y};
  if (at.x + callout.x > size.x || at.y + callout.y > size.y)
    at = {spot.x + spot.w - callout.x - gap, spot.y + spot.h - callout.y - gap};
  return {std::clamp(at.x, 0.0f, std::max(0.0f, size.x - callout.x)),
          std::clamp(at.y, 0.0f, std::max(0.0f, size.y - callout.y))};
}

}  // namespace

bool Tour::draw(const Look& look, const TourStep& step,
                const std::function<std::optional<Area>(const std::string&)>& place_of) {
  if (!step_) return false;
  const auto before = step_;
  const ImVec2 size = ImGui::GetIO().DisplaySize;
  const float width = std::min(look.px(kCallout), size.x * 0.9f);
  const float pad = look.px(12);
  const float wrap = width - 2 * pad;
  // Room for what is said once the heads are known: the buttons stay under the mouse.
  const float text = std::max(ImGui::CalcTextSize(step.words.c_str(), nullptr, false, wrap).y,
                              kLeastLines * ImGui::GetTextLineHeight());
  const float height = text + 2 * ImGui::GetTextLineHeightWithSpacing() + ImGui::GetFrameHeight() +
                       2 * pad + 3 * ImGui::GetStyle().ItemSpacing.y;
  ImVec2 at{(size.x - width) / 2, (size.y - height) / 2};
  if (const auto spot = place_of(step.target)) {
    draw_spot(look, *spot);
    at = callout_place(look, *spot, {width, height});
  }
  ImGui::SetNextWindowPos(at);
  ImGui::SetNextWindowSize({width, height});
  ImGui::PushStyleColor(ImGuiCol_WindowBg, packed(look.surface));
  ImGui::PushStyleColor(ImGuiCol_Border, packed(look.accent));
  ImGui::PushStyleVar(ImGuiStyleVar_WindowBorderSize, look.px(1.5f));
  ImGui::PushStyleVar(ImGuiStyleVar_WindowRounding, look.px(6));
  ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, {pad, pad});
  ImGui::Begin("tour", nullptr,
               ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoMove |
                   ImGuiWindowFlags_NoSavedSettings | ImGuiWindowFlags_NoFocusOnAppearing);
  ImGui::TextDisabled("%zu of %zu", *step_ + 1, kTourSteps);
  ImGui::SameLine();
  ImGui::TextUnformatted(step.title.c_str());
  ImGui::Separator();
  ImGui::PushTextWrapPos(0.0f);
  ImGui::TextUnformatted(step.words.c_str());
  ImGui::PopTextWrapPos();
  ImGui::SetCursorPosY(height - pad - ImGui::GetFrameHeight());
  const bool is_last = *step_ + 1 == kTourSteps;
  if (*step_ > 0) {
    if (ImGui::Button("Back")) go(*step_ - 1);
    landmark("tour back");
    ImGui::SameLine();
  }
  if (ImGui::Button(is_last ? "Done" : "Next", {look.px(70), 0})) go(*before + 1);
  landmark("tour next");
  if (!is_last) {
    const char* words = "Leave  Esc";
    ImGui::SameLine(width - pad - ImGui::CalcTextSize(words).x -
                    2 * ImGui::GetStyle().FramePadding.x);
    if (ImGui::Button(words)) leave();
    landmark("tour leave");
  }
  ImGui::End();
  ImGui::PopStyleVar(3);
  ImGui::PopStyleColor(2);
  return step_ != before;
}

}  // namespace kvscope::gui

#include "gui/app/sidebar.hpp"

#include <fmt/format.h>
#include <imgui.h>

#include "core/base/error.hpp"
#include "gui/model/methods.hpp"
#include "gui/panels/landmarks.hpp"
#include "gui/panels/widgets.hpp"
#include "gui/render/colour.hpp"

namespace kvscope::gui {

namespace {

/// A number with buttons to either side, in the width of the bar; true if it changed.
bool stepper(const char* name, Index& value, const char* keys) {
  const float label = ImGui::GetFontSize() * 4.2f;
  ImGui::AlignTextToFramePadding();
  ImGui::TextDisabled("%s", name);
  help_tooltip(keys);
  ImGui::SameLine(label);
  ImGui::SetNextItemWidth(-1.0f);
  const Index step = 1;
  const Index page = 16;
  const bool changed =
      ImGui::InputScalar(fmt::format("##{}", name).c_str(), ImGuiDataType_S64, &value, &step, &page,
                         "%lld", ImGuiInputTextFlags_EnterReturnsTrue);
  landmark(name);
  return changed;
}

void draw_selection(PanelContext& context) {
  Session& session = context.session;
  const auto document = session.document();
  const Selection& now = session.selection();
  Index layer = now.layer;
  Index head = now.q_head;
  Index query = now.query;
  if (stepper("layer", layer,
              "Layer, by its number in the model. L and Shift+L step through the recorded ones.")) {
    session.select("layer field", [&](Selection& s) { s.layer = layer; });
  }
  if (stepper("head", head, "Query head. H and Shift+H step through the recorded ones.")) {
    session.select("head field", [&](Selection& s) { s.q_head = head; });
  }
  if (stepper("query", query, "Position of the query. Q and Shift+Q step.")) {
    session.select("query field", [&](Selection& s) { s.query = query; });
  }
  ImGui::PushStyleColor(ImGuiCol_Text, packed(context.look.muted));
  const TokenRange call = session.call();
  const std::string where =
      session.phase() == Phase::prefill
          ? fmt::format("prefill chunk {} to {}, KV head {}", call.begin, call.end - 1,
                        session.kv_head())
          : fmt::format("decode step {}, KV head {}", now.query - document->info().n_prompt,
                        session.kv_head());
  ImGui::TextWrapped("%s", where.c_str());
  ImGui::TextWrapped("query %s", token_words(*document, now.query).c_str());
  if (now.key) ImGui::TextWrapped("key %s", token_words(*document, *now.key).c_str());
  ImGui::PopStyleColor();
}

void method_choice(PanelContext& context, const char* name, const MethodSpec& current,
                   const char* origin, MethodSpec Selection::*field, const char* help) {
  Session& session = context.session;
  static const std::vector<std::string> names = method_names();
  const float label = ImGui::GetFontSize() * 4.2f;
  ImGui::AlignTextToFramePadding();
  ImGui::TextDisabled("%s", name);
  help_tooltip(help);
  ImGui::SameLine(label);
  std::string chosen = current.text();
  if (choose(fmt::format("##{}", name).c_str(), chosen, names, -1.0f)) {
    session.select(origin, [&](Selection& s) { s.*field = chosen; });
  }
  landmark(name);
  if (current.stages().size() == 1) {
    const SelectorEntry& entry = *current.stages()[0].method;
    help_tooltip(fmt::format("{}: {}. {}", entry.title, entry.idea, entry.source));
  }
  const std::string why = obstacle(current, session.phase(), session.second() != nullptr);
  if (!why.empty()) {
    ImGui::PushStyleColor(ImGuiCol_Text, packed(context.look.warning));
    ImGui::TextWrapped("%s", why.c_str());
    ImGui::PopStyleColor();
  }
}

}  // namespace

void draw_sidebar(PanelContext& context, Panel* traces, float& controls_height) {
  Session& session = context.session;
  const bool has_trace = session.document() != nullptr;
  const float height = ImGui::GetContentRegionAvail().y;
  // What is chosen stays in sight; the tree above it scrolls.
  const float wanted = controls_height > 0.0f ? controls_height : height * 0.5f;
  const float controls = has_trace ? std::min(height * 0.62f, wanted) : 0.0f;
  ImGui::BeginChild("traces", {0, height - controls}, false);
  try {
    if (traces != nullptr) traces->draw(context);
  } catch (const Error& e) {
    error_place(context, e.what());
  }
  ImGui::EndChild();
  // The last trace may have been closed just now.
  if (!has_trace || session.document() == nullptr) return;
  ImGui::Separator();
  ImGui::BeginChild("controls", {0, 0}, false);
  draw_selection(context);
  ImGui::Separator();
  method_choice(context, "method", session.selection().selector, "method", &Selection::selector,
                "The method whose kept keys are shown. M and Shift+M step through all.");
  method_choice(context, "against", session.selection().other, "other method", &Selection::other,
                "What it is compared with.");
  ImGui::Separator();
  Parameters parameters = session.parameters();
  const std::string changed = field_controls(parameters);
  if (!changed.empty()) {
    session.set_parameters("slider " + changed, [&](Parameters& p) { p = parameters; });
  }
  const float used = ImGui::GetCursorPosY() + ImGui::GetStyle().ItemSpacing.y * 3;
  ImGui::EndChild();
  controls_height = used;
}

}  // namespace kvscope::gui

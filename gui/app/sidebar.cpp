#include "gui/app/sidebar.hpp"

#include <fmt/format.h>
#include <imgui.h>
#include <imgui_stdlib.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "core/base/error.hpp"
#include "core/trace/result.hpp"
#include "gui/model/session/methods.hpp"
#include "gui/panels/widgets.hpp"

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
  const TokenRange call = session.call();
  const std::string where =
      session.phase() == Phase::prefill
          ? fmt::format("prefill chunk {} to {}, KV head {}", call.begin, call.end - 1,
                        session.kv_head())
          : fmt::format("decode step {}, KV head {}", now.query - document->info().n_prompt,
                        session.kv_head());
  const plot::Colour muted = context.look.muted;
  one_line(muted, where);
  one_line(muted, "query " + token_words(*document, now.query));
  one_line(muted, now.key ? "key " + token_words(*document, *now.key) : "no key is selected");
  const Brush& brush = session.brush();
  one_line(brush.empty() ? muted : context.look.accent, brush.words());
}

constexpr std::size_t kMostRecentMethods = 5;

/// The list below the field; the method that was clicked.
std::optional<std::string> draw_groups(const Look& look, const std::vector<MethodGroup>& groups,
                                       const std::string& chosen) {
  std::optional<std::string> clicked;
  const float right = ImGui::GetWindowContentRegionMax().x;
  for (const MethodGroup& group : groups) {
    ImGui::TextDisabled("%s", group.heading.c_str());
    ImGui::PushID(group.heading.c_str());
    for (const MethodLine& line : group.methods) {
      const float left = ImGui::GetCursorPosX();
      const bool on = line.name == chosen;
      if (ImGui::Selectable(line.name.c_str(), on)) clicked = line.name;
      if (on) ImGui::SetItemDefaultFocus();
      help_tooltip(line.idea);
      const float paper = right - ImGui::CalcTextSize(line.paper.c_str()).x;
      const float title = left + look.px(170);
      ImGui::SameLine(title);
      ImGui::TextDisabled("%s", fitting(line.title, paper - title - look.px(10)).c_str());
      ImGui::SameLine(paper);
      ImGui::TextDisabled("%s", line.paper.c_str());
    }
    ImGui::PopID();
  }
  if (groups.empty()) ImGui::TextDisabled("no method of that name, paper or idea");
  return clicked;
}

/// True if another method was chosen. `name`: of the landmark; the field's is "find NAME".
bool choose_method(PanelContext& context, MethodChoice& choice, const char* name,
                   std::string& chosen) {
  const Look& look = context.look;
  const ImVec2 room = ImGui::GetIO().DisplaySize;
  const ImVec2 size{std::min(look.px(600), room.x * 0.9f), std::min(look.px(440), room.y * 0.6f)};
  ImGui::SetNextItemWidth(-1.0f);
  ImGui::SetNextWindowSizeConstraints({size.x, 0.0f}, {size.x, room.y});
  const bool is_open = ImGui::BeginCombo(fmt::format("##{}", name).c_str(), chosen.c_str());
  if (!is_open) {
    landmark(name);
    return false;
  }
  if (ImGui::IsWindowAppearing()) {
    choice.typed.clear();
    ImGui::SetKeyboardFocusHere();
  }
  ImGui::SetNextItemWidth(-1.0f);
  const bool is_entered =
      ImGui::InputTextWithHint("##find", "find by name, paper, year or idea; Enter takes the first",
                               &choice.typed, ImGuiInputTextFlags_EnterReturnsTrue);
  landmark(fmt::format("find {}", name));
  const std::vector<MethodGroup> groups = method_groups(choice.typed, choice.recent);
  ImGui::BeginChild("methods", {0, size.y}, false, ImGuiWindowFlags_NavFlattened);
  std::optional<std::string> taken = draw_groups(look, groups, chosen);
  ImGui::EndChild();
  if (is_entered && !groups.empty()) taken = groups.front().methods.front().name;
  if (taken) ImGui::CloseCurrentPopup();
  ImGui::EndCombo();
  if (!taken) return false;
  std::erase(choice.recent, *taken);
  choice.recent.insert(choice.recent.begin(), *taken);
  if (choice.recent.size() > kMostRecentMethods) choice.recent.resize(kMostRecentMethods);
  const bool is_other = *taken != chosen;
  chosen = *taken;
  return is_other;
}

void method_choice(PanelContext& context, MethodChoice& choice, const char* name,
                   const MethodSpec& current, const char* origin, MethodSpec Selection::*field,
                   const char* help) {
  Session& session = context.session;
  const float label = ImGui::GetFontSize() * 4.2f;
  ImGui::AlignTextToFramePadding();
  ImGui::TextDisabled("%s", name);
  help_tooltip(help);
  ImGui::SameLine(label);
  std::string chosen = current.text();
  if (choose_method(context, choice, name, chosen)) {
    session.select(origin, [&](Selection& s) { s.*field = chosen; });
  }
  if (current.stages().size() == 1) {
    const SelectorEntry& entry = *current.stages()[0].method;
    help_tooltip(fmt::format("{}: {}. {}", entry.title, entry.idea, entry.source));
  }
}

/// One line below both methods: why the first of them that cannot answer here does not. It is
/// there in any case, so that the sliders stay where they are.
void draw_obstacle(PanelContext& context) {
  const Session& session = context.session;
  std::string why;
  for (const MethodSpec& method : {session.selection().other, session.selection().selector}) {
    const std::string here = obstacle(method, session.phase(), session.second() != nullptr);
    if (!here.empty()) why = here;
  }
  one_line(context.look.warning, why);
}

/// The trace that a result was made from, if it is open.
std::string origin_of(const Session& session, const ResultView& result) {
  const auto& uuids = result.info().trace_uuids;
  if (uuids.empty()) return result.info().kind;
  for (const auto& document : session.documents()) {
    if (std::find(uuids.begin(), uuids.end(), document->info().uuid) != uuids.end())
      return fmt::format("{} of {}", result.info().kind, document->name());
  }
  const auto& files = result.info().trace_files;
  return fmt::format("{} of {}, not open", result.info().kind,
                     files.empty() ? std::string("another trace") : files.front());
}

/// The open results, one line each; returns the one that was clicked.
std::optional<Index> draw_results(PanelContext& context) {
  Session& session = context.session;
  std::optional<Index> clicked;
  std::optional<Index> closed;
  const auto& results = session.results();
  if (results.empty()) return clicked;
  const std::string count =
      results.size() == 1 ? "1 result" : fmt::format("{} results", results.size());
  ImGui::TextDisabled("%s", count.c_str());
  for (std::size_t i = 0; i < results.size(); ++i) {
    const std::string name = std::filesystem::path(results[i]->name()).filename().string();
    ImGui::PushID(static_cast<int>(i));
    const float close = ImGui::GetFrameHeight();
    const float width = std::max(1.0f, ImGui::GetContentRegionAvail().x - close);
    if (ImGui::Selectable(name.c_str(), false, 0, {width, 0})) clicked = static_cast<Index>(i);
    landmark(fmt::format("result {}", i));
    help_tooltip(fmt::format("{}: {}. Click to see it.", results[i]->name(),
                             origin_of(session, *results[i])));
    ImGui::SameLine(0, 0);
    if (ImGui::SmallButton("×")) closed = static_cast<Index>(i);
    landmark(fmt::format("close result {}", i));
    help_tooltip("Close this result. The file stays.");
    coloured_words(context.look.muted, origin_of(session, *results[i]));
    ImGui::PopID();
  }
  ImGui::Separator();
  if (closed) session.close_result(*closed);
  return clicked;
}

}  // namespace

std::optional<Index> draw_sidebar(PanelContext& context, Panel* traces, SidebarState& state) {
  Session& session = context.session;
  const bool has_trace = session.document() != nullptr;
  const float height = ImGui::GetContentRegionAvail().y;
  // What is chosen stays in sight; the tree above it scrolls.
  const float wanted = state.controls_height > 0.0f ? state.controls_height : height * 0.5f;
  const float controls = has_trace ? std::min(height * 0.62f, wanted) : 0.0f;
  ImGui::BeginChild("traces", {0, height - controls}, false, ImGuiWindowFlags_NavFlattened);
  const std::optional<Index> clicked = draw_results(context);
  try {
    if (traces != nullptr) traces->draw(context);
  } catch (const Error& e) {
    error_place(context, e.what());
  }
  ImGui::EndChild();
  // The last trace may have been closed just now.
  if (!has_trace || session.document() == nullptr) return clicked;
  ImGui::Separator();
  ImGui::BeginChild("controls", {0, 0}, false, ImGuiWindowFlags_NavFlattened);
  draw_selection(context);
  ImGui::Separator();
  method_choice(context, state.methods, "method", session.selection().selector, "method",
                &Selection::selector,
                "The method whose kept keys are shown. M and Shift+M step through all.");
  method_choice(context, state.methods, "against", session.selection().other, "other method",
                &Selection::other, "What it is compared with.");
  draw_obstacle(context);
  ImGui::Separator();
  Parameters parameters = session.parameters();
  const auto document = session.document();
  const std::string changed = field_controls(
      parameters, [&](const Field& field) { return within(field, document->info()); });
  if (!changed.empty()) {
    session.set_parameters("slider " + changed, [&](Parameters& p) { p = parameters; });
  }
  const float used = ImGui::GetCursorPosY() + ImGui::GetStyle().ItemSpacing.y * 3;
  ImGui::EndChild();
  state.controls_height = used;
  return clicked;
}

}  // namespace kvscope::gui

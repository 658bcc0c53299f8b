#include "gui/panels/run_list.hpp"

#include <fmt/format.h>
#include <imgui.h>

#include <functional>
#include <system_error>

#include "gui/panels/widgets.hpp"
#include "gui/render/fonts.hpp"

namespace kvscope::gui {

namespace {

namespace fs = std::filesystem;

/// What a line's buttons ask for, done once the list is drawn.
using RunWish = std::function<void()>;

bool line_button(const Run& run, const char* label, const char* name, const char* help) {
  const bool pressed = ImGui::SmallButton(label);
  landmark(fmt::format("run {} {}", run.id, name));
  help_tooltip(help);
  ImGui::SameLine();
  return pressed;
}

void draw_progress(const PanelContext& context, const Run& run) {
  progress_bar(run.status, -1.0f);
  coloured_words(context.look.muted, progress_words(run.status));
}

void draw_end(const PanelContext& context, const Run& run) {
  const Look& look = context.look;
  const JobState state = run.status.state;
  const bool has_failed = state == JobState::failed;
  const bool is_cancelled = state == JobState::cancelled;
  std::string words = has_failed ? run.status.error : is_cancelled ? "cancelled" : "done";
  if (!run.remark.empty()) words += (has_failed || is_cancelled ? "; " : ": ") + run.remark;
  coloured_words(has_failed ? look.error : look.muted, words);
  if (run.said.empty() || !ImGui::TreeNode("what it printed")) return;
  ImGui::BeginChild("said", {0, look.px(160)}, true, ImGuiWindowFlags_HorizontalScrollbar);
  ImGui::TextUnformatted(run.said.data(), run.said.data() + run.said.size());
  ImGui::EndChild();
  ImGui::TreePop();
}

void draw_buttons(PanelContext& context, const Run& run, RunWish& wish) {
  RunQueue& runs = context.runs;
  const auto ask_again = [&](RunQueue::Again how) {
    wish = [&runs, id = run.id, how] { runs.again(id, how); };
  };
  std::error_code error;
  const fs::path part = run.part();
  if (!run.status.is_over()) {
    if (line_button(
            run, "Cancel", "cancel",
            "Asks it to stop, as Ctrl-C does: a recording keeps its complete chunks and steps."))
      wish = [&runs, id = run.id] { runs.cancel(id); };
    // Before its first call is whole there is nothing to look at.
    if (run.status.progress.done > 0 && !part.empty() && fs::exists(part, error) &&
        line_button(run, "Watch", "watch", "Opens the recording while it grows."))
      context.requests.open.push_back(part);
  } else {
    if (run.has_made_file &&
        line_button(run, "Open", "open",
                    "Shows the file that it made, if the explorer can show it."))
      context.requests.open.push_back(run.out);
    const bool has_store = fs::exists(run.store(), error);
    const bool is_done = run.status.state == JobState::done;
    const auto knows = [&](RunQueue::Again how) { return !runs.flag_for(run, how).empty(); };
    if (has_store && knows(RunQueue::Again::resume) &&
        line_button(run, "Continue", "continue", "Goes on after what is finished (--resume)."))
      ask_again(RunQueue::Again::resume);
    if (!is_done && (has_store || run.has_made_file) && knows(RunQueue::Again::replace)) {
      if (line_button(run, "Start over", "start over",
                      "Runs it from its beginning, in place of what is there."))
        ask_again(RunQueue::Again::replace);
    } else if (line_button(run, "Again", "again", "Runs the same command once more.")) {
      ask_again(RunQueue::Again::same);
    }
  }
  if (line_button(run, "Copy as command", "copy",
                  "Copies the command line that does the same in a terminal.")) {
    ImGui::SetClipboardText(run.command_line().c_str());
    context.requests.flash = "copied: " + run.command_line();
  }
  if (run.status.is_over() &&
      line_button(run, "×", "forget", "Takes it from this list. Its files stay."))
    wish = [&runs, id = run.id] { runs.forget(id); };
  ImGui::NewLine();
}

}  // namespace

void draw_run_list(PanelContext& context) {
  const auto& runs = context.runs.runs();
  RunWish wish;
  for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
    ImGui::PushID(static_cast<int>(run->id));
    if (run != runs.rbegin()) ImGui::Separator();
    ImGui::TextUnformatted(run->title().c_str());
    help_tooltip(run->command_line());
    run->status.is_over() ? draw_end(context, *run) : draw_progress(context, *run);
    ImGui::PushFont(context.fonts.small());
    draw_buttons(context, *run, wish);
    ImGui::PopFont();
    ImGui::PopID();
  }
  if (wish) wish();
}

}  // namespace kvscope::gui

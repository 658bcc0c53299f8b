// Everything that the command line does, started from the window: a command's options as a form at
// the left, what was started at the right.
#include <fmt/format.h>
#include <imgui.h>
#include <imgui_stdlib.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "gui/model/runs/run_queue.hpp"
#include "gui/panels/run_list.hpp"
#include "gui/panels/widgets.hpp"
#include "gui/render/fonts.hpp"

namespace kvscope::gui {

class RunsPanel final : public Panel {
 public:
  PanelInfo info() const override {
    return {"runs", "Runs",
            "Record, analyse, sweep, simulate: any command of kvscope on what is open, with its "
            "progress, and as a line to copy."};
  }

  void draw(PanelContext& context) override {
    const auto& commands = context.runs.commands();
    const auto [width, height] = ImGui::GetContentRegionAvail();
    const bool is_wide = width > context.look.px(720);
    // one above the other, the form is what a small window shows
    const float list = context.runs.runs().empty() ? context.look.px(100)
                                                   : std::min(context.look.px(220), 0.45f * height);
    ImGui::BeginChild("form", {is_wide ? width * 0.56f : 0.0f, is_wide ? 0.0f : -list}, false,
                      ImGuiWindowFlags_AlwaysUseWindowPadding);
    if (!commands.empty()) {
      draw_form(context, commands);
    } else if (!context.runs.problem().empty()) {
      if (error_place(context, context.runs.problem())) context.runs.ask_again();
    } else {
      ImGui::TextDisabled("Asking kvscope for its commands...");
    }
    ImGui::EndChild();
    if (is_wide) ImGui::SameLine();
    ImGui::BeginChild("runs", {0, 0}, false, ImGuiWindowFlags_AlwaysUseWindowPadding);
    if (context.runs.runs().empty()) {
      empty_place(context, "Nothing was started yet",
                  "What is started here runs in the background: the program kvscope itself, one "
                  "command after another.");
    }
    draw_run_list(context);
    ImGui::EndChild();
  }

  nlohmann::ordered_json options() const override { return {{"command", command_}}; }
  /// "values": what is filled into the command's form; sessions have none.
  void set_options(const nlohmann::ordered_json& options) override {
    if (!options.contains("command") || !options["command"].is_string()) return;
    command_ = options["command"].get<std::string>();
    if (!options.contains("values") || !options["values"].is_object()) return;
    for (const auto& [name, value] : options["values"].items()) {
      if (value.is_string()) forms_[command_].values[name] = value.get<std::string>();
    }
  }

 private:
  /// The values of a command: suggestions where the user typed nothing.
  struct Form {
    CommandValues values;
    CommandValues suggested;
    std::string about;  // what the suggestions were made for
  };

  static std::string subject_of(const Session& session) {
    const auto trace = session.document();
    const auto second = session.second();
    return fmt::format("{}|{}|{}|{}", trace ? trace->path().string() : "",
                       second ? second->path().string() : "", fmt::join(session.ticked(), ","),
                       session.parameters().budget);
  }

  Form& form_of(const CommandSpec& command, const Session& session) {
    Form& form = forms_[command.name];
    const std::string about = subject_of(session);
    if (form.about == about) return form;
    const CommandValues fresh = suggested_values(command, session);
    for (const auto& [name, value] : form.suggested) {
      if (form.values[name] == value) form.values.erase(name);  // nobody changed it
    }
    for (const auto& [name, value] : fresh) form.values.try_emplace(name, value);
    form.suggested = fresh;
    form.about = about;
    return form;
  }

  void draw_form(PanelContext& context, const std::vector<CommandSpec>& commands) {
    std::vector<std::string> names;
    for (const CommandSpec& command : commands) names.push_back(command.name);
    if (std::ranges::find(names, command_) == names.end())
      command_ = context.session.document() ? "sweep" : names.front();
    ImGui::AlignTextToFramePadding();
    ImGui::TextUnformatted("kvscope");
    ImGui::SameLine();
    choose("##command", command_, names, -1.0f);
    landmark("command");
    const auto found = std::ranges::find_if(
        commands, [&](const CommandSpec& one) { return one.name == command_; });
    if (found == commands.end()) return;
    const CommandSpec& command = *found;
    Form& form = form_of(command, context.session);
    coloured_words(context.look.muted, command.summary);
    help_tooltip(command.description);

    const std::vector<std::string> words = command_words(command, form.values);
    const std::string line = command_line_of(words);
    ImGui::PushFont(context.fonts.small());
    const float wrap = ImGui::GetContentRegionAvail().x;
    const float line_height = ImGui::CalcTextSize(line.c_str(), nullptr, false, wrap).y;
    ImGui::PopFont();
    const float below = std::min(line_height, context.look.px(90)) + ImGui::GetFrameHeight() +
                        4 * ImGui::GetStyle().ItemSpacing.y;
    ImGui::BeginChild("options", {0, -below}, false);
    draw_options(command, form);
    ImGui::EndChild();
    ImGui::Separator();
    ImGui::PushFont(context.fonts.small());
    coloured_words(context.look.muted, line);
    ImGui::PopFont();
    if (ImGui::Button("Run", {context.look.px(90), 0})) start(context, form, words);
    landmark("run command");
    ImGui::SameLine();
    if (ImGui::Button("Copy as command")) {
      ImGui::SetClipboardText(line.c_str());
      context.requests.flash = "copied: " + line;
    }
    landmark("copy command");
    help_tooltip("Copies the line above: in a terminal it does the same.");
  }

  static void start(PanelContext& context, Form& form, const std::vector<std::string>& words) {
    const auto out = form.values.find("out");
    context.runs.add(words, out == form.values.end() ? std::string() : out->second);
    // The next one goes to another file, unless this one was named by hand.
    const auto suggested = form.suggested.find("out");
    if (out == form.values.end() || suggested == form.suggested.end() ||
        out->second != suggested->second)
      return;
    std::filesystem::path next = out->second;
    if (free_file(next) == next) {  // not written yet: the name after it
      next = next.parent_path() /
             fmt::format("{}-2{}", next.stem().string(), next.extension().string());
    }
    form.values["out"] = form.suggested["out"] = free_file(next).string();
  }

  /// What the command is about, and what was set, come first; the others are folded.
  void draw_options(const CommandSpec& command, Form& form) {
    const auto is_first = [&](const CommandOption& option) {
      return option.is_argument || form.suggested.contains(option.name) ||
             option.name == "selector" || option.name == "model";
    };
    Index n_more = 0;
    for (const CommandOption& option : command.options) {
      if (is_first(option)) {
        draw_option(option, form);
      } else {
        ++n_more;
      }
    }
    if (n_more == 0) return;
    if (!ImGui::CollapsingHeader(fmt::format("{} more options###more", n_more).c_str())) {
      landmark("more options");
      return;
    }
    landmark("more options");
    ImGui::SetNextItemWidth(-1.0f);
    ImGui::InputTextWithHint("##filter", "words of their names or meaning", &filter_);
    for (const CommandOption& option : command.options) {
      const bool fits = filter_.empty() || option.name.find(filter_) != std::string::npos ||
                        option.help.find(filter_) != std::string::npos;
      if (fits && !is_first(option)) draw_option(option, form);
    }
  }

  static void draw_option(const CommandOption& option, Form& form) {
    std::string& value = form.values[option.name];
    ImGui::PushID(option.name.c_str());
    const float label = ImGui::GetFontSize() * 9.0f;
    const float left = ImGui::GetCursorPosX();
    ImGui::AlignTextToFramePadding();
    if (value.empty()) {
      ImGui::TextDisabled("%s", option.name.c_str());
    } else {
      ImGui::TextUnformatted(option.name.c_str());
    }
    help_tooltip(option.help);
    ImGui::SameLine(left + label);
    const std::string hint = option.is_required
                                 ? "needed"
                                 : (option.preset.empty() ? option.placeholder : option.preset);
    if (option.is_flag()) {
      bool on = value == "true";
      if (check_box("##value", &on)) value = on ? "true" : "";
    } else if (!option.choices.empty()) {
      std::vector<std::string> words = {""};
      words.insert(words.end(), option.choices.begin(), option.choices.end());
      ImGui::SetNextItemWidth(-1.0f);
      if (ImGui::BeginCombo("##value", value.empty() ? hint.c_str() : value.c_str())) {
        for (const std::string& word : words) {
          const std::string shown = word.empty() ? fmt::format("as it is ({})", hint) : word;
          if (ImGui::Selectable(shown.c_str(), word == value)) value = word;
        }
        ImGui::EndCombo();
      }
    } else {
      ImGui::SetNextItemWidth(-1.0f);
      ImGui::InputTextWithHint("##value", hint.c_str(), &value);
    }
    landmark("option " + option.name);
    help_tooltip(option.help);
    ImGui::PopID();
  }

  std::string command_;
  std::map<std::string, Form> forms_;
  std::string filter_;
};

std::unique_ptr<Panel> make_runs_panel() {
  return std::make_unique<RunsPanel>();
}

}  // namespace kvscope::gui

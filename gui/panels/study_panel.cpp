// A study (analysis/study.md) and how far it is: what is known, at work, failed and left.
#include <fmt/format.h>
#include <imgui.h>
#include <imgui_stdlib.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/base/csv_text.hpp"
#include "core/base/number_text.hpp"
#include "gui/model/runs/study_status.hpp"
#include "gui/panels/landmarks.hpp"
#include "gui/panels/panel.hpp"
#include "gui/panels/widgets.hpp"
#include "gui/render/colour.hpp"

namespace kvscope::gui {

namespace {

using Clock = std::chrono::steady_clock;

/// While somebody works at it, it is asked again so long after each answer.
constexpr std::chrono::seconds kPause(2);

std::string seconds_words(const std::optional<double>& seconds) {
  return seconds ? seconds_text(*seconds) : "unknown";
}

class StudyPanel final : public Panel {
 public:
  PanelInfo info() const override {
    return {
        "study", "Study",
        "How far a study is: items known, at work, failed with their sentence, the rate and the "
        "time left, as kvscope study status says. It is asked again while a run works, here or "
        "on another machine that shares the store.",
        Extent::trace};
  }

  void controls(PanelContext& context) override {
    if (file_.empty()) return;
    run_button(
        context, "Run", "run study", {"study", "run", file_, "--engine", "local"},
        "Computes what is not known yet, with this machine's cores, beside the window (Run).");
    if (status_ && status_->all.failed > 0) {
      ImGui::SameLine();
      run_button(context, "Retry failed", "retry study",
                 {"study", "run", file_, "--engine", "local", "--retry-failed"},
                 "Tries the items again that failed.");
    }
    ImGui::SameLine();
    if (ImGui::Button("Look again")) ++turn_;
    landmark("look at study");
  }

  void draw(PanelContext& context) override {
    ImGui::SetNextItemWidth(-1.0f);
    if (ImGui::InputTextWithHint("##study", "the study, a TOML file", &typed_,
                                 ImGuiInputTextFlags_EnterReturnsTrue)) {
      file_ = typed_;
      ++turn_;
    }
    landmark("study file");
    help_tooltip("What kvscope study run takes: analysis/study.md. Press Enter.");
    if (file_.empty()) {
      empty_place(context, "No study is chosen",
                  "Name a study's file above. kvscope study plan FILE.toml says what it asks.");
      return;
    }
    const auto view = value_.ask(context.session.bench(), fmt::format("study {}\n{}", turn_, file_),
                                 {"Asking how far the study is", Lane::quick},
                                 [program = context.runs.program(), file = file_](JobContext& job) {
                                   return ask_study_status(program, file, job.stop);
                                 });
    ask_later(context, view);
    if (!async_place(context, value_, view)) return;
    status_ = view.value;
    draw_status(context, *status_);
  }

  std::optional<std::string> csv() const override {
    if (!status_) return std::nullopt;
    std::string csv = "task,items,known,failed,to_do,jobs,seconds\n";
    const auto add = [&](const StudyTaskStatus& task) {
      csv += fmt::format("{},{},{},{},{},{},{}\n", csv_field(task.task), task.items, task.known,
                         task.failed, task.to_do, task.jobs,
                         task.seconds ? csv_number(*task.seconds) : "");
    };
    for (const StudyTaskStatus& task : status_->tasks) add(task);
    add(status_->all);
    return csv;
  }

  nlohmann::ordered_json options() const override { return {{"file", file_}}; }
  void set_options(const nlohmann::ordered_json& options) override {
    if (!options.contains("file") || !options["file"].is_string()) return;
    file_ = typed_ = options["file"].get<std::string>();
    ++turn_;
  }
  bool is_busy() const override { return is_asking_; }

 private:
  void run_button(PanelContext& context, const char* label, const char* name,
                  std::vector<std::string> words, const char* help) {
    if (ImGui::Button(label)) {
      context.requests.flash = "started: " + command_line_of(words);
      context.runs.add(std::move(words));
      ++turn_;
    }
    landmark(name);
    help_tooltip(help);
  }

  /// Another look after a while, as long as there is somebody at work.
  void ask_later(PanelContext& context, const AsyncView<StudyStatus>& view) {
    is_asking_ = view.is_pending();
    const bool is_ours = !context.runs.is_idle();
    if (!view.fresh) {
      next_.reset();
      return;
    }
    if (view.value->writer.empty() && !is_ours) return;
    if (!next_) next_ = Clock::now() + kPause;
    if (Clock::now() >= *next_) ++turn_;
    context.requests.redraw = true;
  }

  void draw_status(PanelContext& context, const StudyStatus& status) {
    const Look& look = context.look;
    const StudyTaskStatus& all = status.all;
    const float share =
        all.items > 0 ? static_cast<float>(all.known) / static_cast<float>(all.items) : 0.0f;
    ImGui::ProgressBar(share, {-1.0f, look.px(5)}, "");
    wrapped_words(fmt::format("{}: {} items, {} known, {} failed, {} to do in {} jobs",
                              status.study, all.items, all.known, all.failed, all.to_do, all.jobs));
    coloured_words(look.muted, work_words(status));
    for (const std::string& label : status.running) coloured_words(look.muted, "at work: " + label);
    draw_tasks(status);
    if (status.failures.empty()) return;
    ImGui::Separator();
    for (const StudyFailure& failure : status.failures) {
      wrapped_words(failure.item);
      coloured_words(look.error, failure.sentence);
    }
    if (all.failed > status.failures.size())
      coloured_words(look.muted, fmt::format("and {} more", all.failed - status.failures.size()));
  }

  static std::string work_words(const StudyStatus& status) {
    if (status.writer.empty())
      return status.all.to_do == 0 ? "nobody works at it: nothing is left to do"
                                   : "nobody works at it";
    std::string words = status.writer + " works at it";
    if (status.jobs_per_hour)
      words +=
          fmt::format(": {} jobs an hour, about {} left", number_text(*status.jobs_per_hour, 3),
                      seconds_words(status.seconds_left));
    return words;
  }

  static void draw_tasks(const StudyStatus& status) {
    constexpr ImGuiTableFlags kFlags =
        ImGuiTableFlags_RowBg | ImGuiTableFlags_BordersInnerH | ImGuiTableFlags_SizingStretchProp;
    constexpr const char* kColumns[] = {"task", "items", "known", "failed", "to do", "processor"};
    if (!ImGui::BeginTable("tasks", 6, kFlags)) return;
    ImGui::TableNextRow(ImGuiTableRowFlags_Headers);
    for (const char* name : kColumns) {
      ImGui::TableNextColumn();
      ImGui::TextDisabled("%s", name);
    }
    help_tooltip("Processor time that is left, from what was measured of the same kind of work.");
    for (const StudyTaskStatus& task : status.tasks) {
      ImGui::TableNextRow();
      ImGui::TableNextColumn();
      ImGui::TextUnformatted(task.task.c_str());
      for (const std::size_t n : {task.items, task.known, task.failed, task.to_do}) {
        ImGui::TableNextColumn();
        ImGui::TextUnformatted(fmt::format("{}", n).c_str());
      }
      ImGui::TableNextColumn();
      ImGui::TextUnformatted(task.to_do == 0 ? "" : seconds_words(task.seconds).c_str());
    }
    ImGui::EndTable();
  }

  std::string file_;   // that is asked about
  std::string typed_;  // in the line above
  std::size_t turn_ = 0;
  std::optional<Clock::time_point> next_;
  bool is_asking_ = false;
  AsyncValue<StudyStatus> value_;
  std::shared_ptr<const StudyStatus> status_;
};

}  // namespace

std::unique_ptr<Panel> make_study_panel() {
  return std::make_unique<StudyPanel>();
}

}  // namespace kvscope::gui

// A study (analysis/study.md) and how far it is: what is known, at work, failed and left.
#include <fmt/format.h>
#include <imgui.h>
#include <imgui_stdlib.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/base/csv_text.hpp"
#include "core/base/number_text.hpp"
#include "gui/model/runs/child_program.hpp"
#include "gui/model/runs/study_status.hpp"
#include "gui/panels/cell_table.hpp"
#include "gui/panels/panel_base.hpp"
#include "gui/panels/widgets.hpp"
#include "gui/render/fonts.hpp"

namespace kvscope::gui {

namespace {

using StudyClock = std::chrono::steady_clock;

/// While somebody works at it, it is asked again so long after each answer, and not so often that
/// the answers take more than a fifth of a processor.
constexpr std::chrono::seconds kStudyPause(2);

std::string time_words(const std::optional<double>& seconds) {
  return seconds ? seconds_text(*seconds) : "unknown";
}

class StudyPanel final : public AskingPanel {
 public:
  PanelInfo info() const override {
    return {
        "study", "Study",
        "How far a study is, as kvscope study status says: items known, at work, failed with their "
        "sentence, the rate and the time left. It is asked again while a run works, here or on "
        "another machine that shares the store.",
        Extent::trace};
  }

  void controls(PanelContext& context) override {
    if (!status_) return;
    const std::string file = file_;
    if (status_->all.to_do > 0 && status_->running.empty()) {
      run_button(context, "Run", "run study", {"study", "run", file, "--engine", "local"},
                 "Computes what is not known yet, in processes on this machine. Runs lists it.");
      ImGui::SameLine();
    }
    if (status_->all.failed > 0) {
      run_button(context, "Retry failed", "retry study",
                 {"study", "run", file, "--engine", "local", "--retry-failed"},
                 "Tries the items again that failed, and what is left to do.");
      ImGui::SameLine();
    }
    if (ImGui::Button("Look again")) asked_ = StudyClock::now();
    landmark("look at study");
    if (status_->all.known == 0) return;
    ImGui::SameLine();
    if (ImGui::Button("Open table")) open_table(context, "");
    landmark("open study");
    help_tooltip("Writes all results that are known as a table beside the study, and opens it.");
  }

  void draw(PanelContext& context) override {
    busy_ = false;
    ImGui::SetNextItemWidth(-1.0f);
    if (ImGui::InputTextWithHint("##study", "the study, a TOML file: its name, then Enter", &typed_,
                                 ImGuiInputTextFlags_EnterReturnsTrue))
      choose(typed_);
    landmark("study file");
    if (file_.empty()) {
      empty_place(context, "No study is chosen",
                  "Drop a study's file (.toml) onto the window, open it with Ctrl+O, or name it "
                  "above. kvscope study plan FILE.toml says what it asks.");
      return;
    }
    const auto view =
        ask(context, slot_, fmt::format("study {} {}", asked_.time_since_epoch().count(), file_),
            {"Asking how far the study is", Lane::questions},
            [program = context.runs.program(), file = file_](JobContext& job) {
              return ask_study_status(program, file, job);
            });
    if (view.fresh) ask_later(context, *view.value);
    if (view.fresh) status_ = view.value;
    // One that is asked again stands still until the answer is there.
    if (!status_ || view.failed()) async_place(context, slot_, view);
    if (status_) draw_status(context, *status_);
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
    if (options.contains("file") && options["file"].is_string())
      choose(options["file"].get<std::string>());
  }

 private:
  void choose(const std::string& file) {
    file_ = typed_ = file;
    asked_ = StudyClock::now();
    is_ours_ = false;
    slot_.clear();
    status_.reset();
  }

  void run_button(PanelContext& context, const char* label, const char* name,
                  std::vector<std::string> words, const char* help) {
    if (ImGui::Button(label)) {
      context.requests.flash = "started: " + command_line_of(words);
      context.runs.add(std::move(words));
      is_ours_ = true;
      asked_ = StudyClock::now();
    }
    landmark(name);
    help_tooltip(help);
  }

  /// Another look after a while, as long as there is somebody at work, and one when this window's
  /// run has ended.
  void ask_later(PanelContext& context, const StudyStatus& status) {
    const auto now = StudyClock::now();
    if (status_.get() != &status)
      next_ = now + std::max<StudyClock::duration>(kStudyPause, 4 * (now - asked_));
    const bool is_running = !context.runs.is_idle();
    if (is_ours_ && !is_running) next_ = now;
    if (status.running.empty() && !is_running && !is_ours_) return;
    is_ours_ = is_running;
    if (now >= next_) {
      asked_ = now;
      context.requests.redraw = true;
    } else {
      context.requests.look_again = std::min(context.requests.look_again, next_);
    }
  }

  // ---- its results ----

  /// Writes the results of a task (empty: of all) beside the study, and opens them.
  void open_table(PanelContext& context, const std::string& task) {
    std::filesystem::path file = file_;
    file.replace_filename(file.stem().string() + (task.empty() ? "" : "-" + task) + "-table.csv");
    std::vector<std::string> words = {context.runs.program(), "study", "table"};
    if (!task.empty()) words.insert(words.end(), {"--task", task, "--rows"});
    file = free_file(file);
    words.insert(words.end(), {"--out", file.string(), "--", file_});
    run_beside(
        context.session, "Writing the study's table", Lane::questions,
        [words, file](JobContext& job) {
          answer_of_program(words, job);
          return file;
        },
        [&requests = context.requests](const std::filesystem::path& written) {
          requests.open.push_back(written);
          requests.flash = "wrote " + written.string();
        });
  }

  // ---- how far it is ----

  void draw_status(PanelContext& context, const StudyStatus& status) {
    const Look& look = context.look;
    const StudyTaskStatus& all = status.all;
    ImGui::Dummy({0, look.px(2)});
    ImGui::PushFont(context.fonts.title());
    ImGui::TextUnformatted(status.study.c_str());
    ImGui::PopFont();
    help_tooltip("Its store: " + status.store);
    draw_share(look, all, look.px(8));
    std::string words =
        fmt::format("{} of {} items are known, {} failed", all.known, all.items, all.failed);
    if (all.to_do > 0) words += fmt::format(", {} to do in {} jobs", all.to_do, all.jobs);
    wrapped_words(words);
    coloured_words(look.muted, work_words(status));
    for (const std::string& label : status.running) coloured_words(look.muted, "at work: " + label);
    ImGui::Dummy({0, look.px(4)});
    draw_tasks(context, status);
    if (status.failures.empty()) return;
    ImGui::Dummy({0, look.px(4)});
    ImGui::TextDisabled("failed");
    draw_failures(look, status.failures);
    if (all.failed > status.failures.size())
      coloured_words(look.muted, fmt::format("and {} more, which kvscope study status --json names",
                                             all.failed - status.failures.size()));
  }

  /// Items that stand beside each other and failed for the same reason are one entry.
  static void draw_failures(const Look& look, const std::vector<StudyFailure>& failures) {
    for (auto first = failures.begin(); first != failures.end();) {
      const auto end = std::find_if(first, failures.end(), [&](const StudyFailure& failure) {
        return failure.sentence != first->sentence;
      });
      std::string names = first->item;
      for (auto one = first + 1; one != end; ++one) names += "\n" + one->item;
      const auto n_more = end - first - 1;
      wrapped_words(n_more == 0 ? first->item
                                : fmt::format("{}, and {} more", first->item, n_more));
      if (n_more > 0) help_tooltip(names);
      coloured_words(look.error, first->sentence);
      first = end;
    }
  }

  /// Known, then failed, of all items, in what is left of the line.
  static void draw_share(const Look& look, const StudyTaskStatus& task, float height) {
    const ImVec2 low = ImGui::GetCursorScreenPos();
    const float width = std::max(look.px(20), ImGui::GetContentRegionAvail().x);
    const auto end_of = [&](std::size_t n) {
      return low.x + width * static_cast<float>(n) /
                         static_cast<float>(std::max<std::size_t>(1, task.items));
    };
    ImDrawList* list = ImGui::GetWindowDrawList();
    const float bottom = low.y + height;
    list->AddRectFilled(low, {low.x + width, bottom}, packed(look.line));
    list->AddRectFilled(low, {end_of(task.known), bottom}, packed(look.accent));
    list->AddRectFilled({end_of(task.known), low.y}, {end_of(task.known + task.failed), bottom},
                        packed(look.error));
    ImGui::Dummy({width, height});
  }

  static std::string work_words(const StudyStatus& status) {
    if (status.running.empty())
      return status.all.to_do > 0    ? "Nobody works at it."
             : status.all.failed > 0 ? "Nothing is left to do but what failed."
                                     : "Nothing is left to do.";
    if (!status.items_per_hour) return "At work; the rate is not known yet.";
    return fmt::format("At work: {} items an hour, about {} left.",
                       number_text(*status.items_per_hour, 3), time_words(status.seconds_left));
  }

  void draw_tasks(PanelContext& context, const StudyStatus& status) {
    const Look& look = context.look;
    constexpr ImGuiTableFlags kFlags =
        ImGuiTableFlags_BordersInnerH | ImGuiTableFlags_SizingFixedFit;
    const std::vector<CellColumn> columns = {
        {"task"},
        {""},
        {"items"},
        {"known"},
        {"failed"},
        {"to do"},
        {"processor time left",
         "From what was measured of the same kind of work; unknown until then."},
        {""}};
    if (!begin_cells("tasks", columns, kFlags)) return;
    for (const StudyTaskStatus& task : status.tasks) {
      ImGui::TableNextRow();
      cells({task.task});
      ImGui::TableNextColumn();
      ImGui::BeginChild(task.task.c_str(), {look.px(90), ImGui::GetTextLineHeight()}, false,
                        ImGuiWindowFlags_NavFlattened | ImGuiWindowFlags_NoScrollbar);
      draw_share(look, task, ImGui::GetTextLineHeight() * 0.7f);
      ImGui::EndChild();
      for (const std::size_t n : {task.items, task.known, task.failed, task.to_do})
        cells({fmt::format("{}", n)});
      cells({task.to_do == 0 ? "" : time_words(task.seconds)});
      ImGui::TableNextColumn();
      if (task.known == 0 || task.task == "record") continue;  // recordings are files of the store
      ImGui::PushID(task.task.c_str());
      if (ImGui::SmallButton("Open")) open_table(context, task.task);
      ImGui::PopID();
      landmark("open study " + task.task);
      help_tooltip("Writes this task's rows as a table beside the study, and opens it.");
    }
    ImGui::EndTable();
  }

  std::string file_;   // that is asked about
  std::string typed_;  // in the line above
  StudyClock::time_point asked_;
  StudyClock::time_point next_;
  bool is_ours_ = false;  // this window ran something when it was asked last
  AsyncValue<StudyStatus> slot_;
  std::shared_ptr<const StudyStatus> status_;
};

}  // namespace

std::unique_ptr<Panel> make_study_panel() {
  return std::make_unique<StudyPanel>();
}

}  // namespace kvscope::gui

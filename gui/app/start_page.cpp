#include "gui/app/start_page.hpp"

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "gui/panels/run_list.hpp"
#include "gui/panels/widgets.hpp"
#include "gui/render/fonts.hpp"
#include "traces/reader.hpp"

namespace kvscope::gui {

namespace fs = std::filesystem;

namespace {

constexpr Index kSampleTokens = 2048;
constexpr Index kSampleDecode = 32;

void muted(const PanelContext& context, const std::string& words) {
  coloured_words(context.look.muted, words);
}

/// A button in the accent colour: what one would press here.
bool main_button(const PanelContext& context, const char* label, bool enabled = true) {
  const plot::Colour accent = context.look.accent;
  ImGui::PushStyleColor(ImGuiCol_Button, packed(plot::with_alpha(accent, enabled ? 0.30 : 0.08)));
  ImGui::PushStyleColor(ImGuiCol_Text, packed(enabled ? context.look.ink : context.look.muted));
  const bool pressed = ImGui::Button(label) && enabled;
  ImGui::PopStyleColor(2);
  landmark(label);
  return pressed;
}

std::vector<fs::path> sample_files() {
  const fs::path folder = cache_folder("samples");
  if (folder.empty()) return {};
  return {folder / "verifier.h5", folder / "draft.h5"};
}

bool are_there(const std::vector<fs::path>& files) {
  std::error_code error;
  return !files.empty() && std::all_of(files.begin(), files.end(), [&](const fs::path& file) {
    return fs::is_regular_file(file, error);
  });
}

/// The recordings from the first on that did not go to its end: one that was cancelled has its
/// final name as well, and what was recorded after it is as short as it is. Opens the files: not
/// for every frame. Throws what that throws: a file that cannot be read may be whole.
std::vector<fs::path> unfinished(const std::vector<fs::path>& files) {
  std::error_code error;
  const auto first = std::find_if(files.begin(), files.end(), [&](const fs::path& file) {
    return fs::is_regular_file(file, error) &&
           TraceFile::open(file, {.allow_partial = true}).info().status != TraceStatus::complete;
  });
  return std::vector<fs::path>(first, files.end());
}

/// The traces that ./demo.sh left below this folder: the verifier's, then the draft's.
std::vector<fs::path> demo_traces(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const char* name : {"verifier.h5", "draft.h5"}) {
    std::error_code error;
    const fs::path file = folder / "kvscope-demo" / name;
    if (fs::is_regular_file(file, error)) found.push_back(file);
  }
  return found;
}

}  // namespace

StartChoice StartPage::draw(PanelContext& context, const Settings& settings) {
  StartChoice choice;
  const Look& look = context.look;
  const ImVec2 room = ImGui::GetContentRegionAvail();
  const bool is_wide = room.x > look.px(900);
  const float width = std::min(room.x - look.px(32), is_wide ? look.px(1180) : look.px(560));
  ImGui::SetCursorPos({ImGui::GetCursorPosX() + (room.x - width) / 2,
                       ImGui::GetCursorPosY() + std::max(look.px(16), room.y * 0.07f)});
  ImGui::BeginChild("start", {width, 0}, false, ImGuiWindowFlags_NavFlattened);
  const float page = ImGui::GetContentRegionAvail().x;  // without a scroll bar
  ImGui::PushFont(context.fonts.title());
  ImGui::TextUnformatted("kvscope explorer");
  ImGui::PopFont();
  muted(
      context,
      "Look inside the attention of a recorded model: what it needs, and what sparse methods keep "
      "of it.");
  ImGui::Dummy({0, look.px(12)});
  const float gap = look.px(16);
  const float card = is_wide ? (page - 2 * gap) / 3 : page;
  const float height = is_wide ? look.px(260) : 0.0f;
  const auto in_card = [&](const char* id, float auto_height, const auto& draw) {
    ImGui::PushStyleColor(ImGuiCol_ChildBg, packed(look.raised));
    ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, {look.px(14), look.px(12)});
    ImGui::PushStyleVar(ImGuiStyleVar_ChildRounding, look.px(6));
    ImGui::BeginChild(id, {card, is_wide ? height : auto_height}, false,
                      ImGuiWindowFlags_AlwaysUseWindowPadding | ImGuiWindowFlags_NavFlattened);
    draw();
    ImGui::EndChild();
    ImGui::PopStyleVar(2);
    ImGui::PopStyleColor();
    if (is_wide) {
      ImGui::SameLine(0, gap);
    } else {
      ImGui::Dummy({0, look.px(8)});
    }
  };
  in_card("try", look.px(190), [&] { draw_samples(context, choice); });
  in_card("record", look.px(260), [&] { draw_recording(context, choice); });
  in_card("open", look.px(260), [&] { draw_files(context, settings); });
  ImGui::NewLine();
  if (!context.runs.runs().empty()) {
    ImGui::Dummy({0, look.px(12)});
    ImGui::TextDisabled("Runs");
    draw_run_list(context);
  }
  ImGui::EndChild();
  return choice;
}

void StartPage::draw_samples(PanelContext& context, StartChoice& choice) {
  ImGui::TextUnformatted("Try it");
  const auto samples = sample_files();
  muted(context,
        fmt::format("Two small models that come with kvscope, recorded on {} tokens of a book, and "
                    "a tour of six steps through what there is to see. Nothing is downloaded.",
                    kSampleTokens));
  ImGui::Dummy({0, context.look.px(6)});
  const auto& runs = context.runs.runs();
  const auto own =
      std::find_if(runs.begin(), runs.end(), [&](const Run& run) { return run.id == sample_run_; });
  const bool is_running = own != runs.end() && !own->status.is_over();
  // Opens them, or removes what was not recorded to its end.
  const auto open_samples = [&] {
    try {
      const std::vector<fs::path> short_ones = unfinished(samples);
      std::error_code error;
      for (const fs::path& file : short_ones) fs::remove(file, error);
      if (!short_ones.empty()) {
        context.requests.flash = "the samples were not recorded to their end: record them again";
      } else if (are_there(samples)) {
        context.requests.open = samples;
        choice.shows_samples = true;
      }
    } catch (const Error& error) {
      context.session.notify(error.what());
    }
  };
  if (own != runs.end() && own->status.is_over() && sample_run_ != 0) {
    sample_run_ = 0;
    // One that failed says why among the runs, and what has its name was there before.
    if (own->status.state != JobState::failed) open_samples();
  }
  const bool has_samples = has_samples_.of(fmt::format("{} {}", is_running, sample_run_),
                                           [&] { return are_there(samples); });
  if (has_samples && !is_running) {
    if (main_button(context, "Open the samples")) open_samples();
  } else if (samples.empty()) {
    muted(context, "There is no home folder to record them into.");
  } else if (main_button(context, "Record the samples", !is_running)) {
    std::error_code error;
    fs::create_directories(samples[0].parent_path(), error);
    const auto n = [](Index number) { return fmt::format("{}", number); };
    context.runs.add(command_words("record", {},
                                   {{"model", "verifier"},
                                    {"max-tokens", n(kSampleTokens)},
                                    {"decode", n(kSampleDecode)},
                                    {"overwrite", ""},
                                    {"out", samples[0].string()}}),
                     samples[0], RunQueue::AtEnd::leave);
    sample_run_ = context.runs.add(command_words("record", {},
                                                 {{"model", "draft"},
                                                  {"tokens", samples[0].string()},
                                                  {"overwrite", ""},
                                                  {"out", samples[1].string()}}),
                                   samples[1], RunQueue::AtEnd::leave);
  }
  if (is_running) muted(context, "Recording: below is how far it is.");
  const auto& demo = demo_.of("", [] {
    std::error_code error;
    return demo_traces(fs::current_path(error));
  });
  if (!demo.empty()) {
    ImGui::Dummy({0, context.look.px(6)});
    if (ImGui::Selectable("The demo's traces, of ./demo.sh")) context.requests.open = demo;
    landmark("demo traces");
  }
}

void StartPage::draw_recording(const PanelContext& context, StartChoice& choice) {
  ImGui::TextUnformatted("Record");
  muted(context,
        "A model on a text of yours: a checkpoint's folder, a GGUF file, or one of this machine by "
        "its name. A .txt may be dropped onto this window.");
  ImGui::Dummy({0, context.look.px(6)});
  if (main_button(context, "Record a model...")) choice.record.emplace();
  const auto found =
      models_.ask(context.session.bench(), "models", {"Models here", Lane::quick}, [](JobContext&) {
        FoundModels all{hub_models()};
        for (StoredModel& model : ollama_models()) all.models.push_back(std::move(model));
        return all;
      });
  if (!found.value || found.value->models.empty()) return;
  ImGui::Dummy({0, context.look.px(6)});
  ImGui::TextDisabled("Models on this machine");
  for (const StoredModel& model : found.value->models) {
    if (ImGui::Selectable(model.word.c_str())) choice.record = {{"model", model.word}};
    landmark("model " + model.word);
    help_tooltip("Record with it: " + model.path.string());
  }
}

void StartPage::draw_files(PanelContext& context, const Settings& settings) {
  ImGui::TextUnformatted("Open");
  ImGui::Dummy({0, context.look.px(4)});
  if (main_button(context, "Open a file...   Ctrl+O"))
    context.requests.press = "open a trace or a result";
  muted(context, "Traces, results and sessions; or drop them onto this window.");
  if (settings.recent.empty()) return;
  ImGui::Dummy({0, context.look.px(6)});
  ImGui::TextDisabled("Recent");
  const std::vector<RecentFile>& entries =
      recent_.of(fmt::format("{}", fmt::join(settings.recent, "\n")), [&] {
        std::vector<RecentFile> found;
        for (const fs::path file : settings.recent)
          found.push_back({file, file_stamp(file).has_value()});
        return found;
      });
  std::size_t i = 0;
  for (const RecentFile& entry : entries) {
    if (draw_recent(context, entry)) context.requests.open = {entry.file};
    landmark(fmt::format("recent {}", i++));
  }
}

bool StartPage::draw_recent(const PanelContext& context, const RecentFile& entry) {
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const std::string name = entry.file.filename().string();
  ImGui::PushID(entry.file.c_str());
  const bool clicked =
      ImGui::Selectable(name.c_str(), false, entry.is_there ? 0 : ImGuiSelectableFlags_Disabled);
  ImGui::PopID();
  help_tooltip(entry.file.string());
  const float right = ImGui::GetWindowPos().x + ImGui::GetWindowContentRegionMax().x;
  const float x = at.x + ImGui::CalcTextSize(name.c_str()).x + context.look.px(12);
  const std::string words = entry.is_there ? entry.file.parent_path().string() : "no longer there";
  ImGui::GetWindowDrawList()->AddText({x, at.y}, packed(context.look.muted),
                                      fitting(words, right - x).c_str());
  return clicked;
}

}  // namespace kvscope::gui

// What panels say in the same words and shapes: progress, failures, empty places, options, details.
#pragma once

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <any>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/fields.hpp"
#include "gui/model/jobs/async_value.hpp"
#include "gui/model/jobs/jobs.hpp"
#include "gui/panels/panel.hpp"
#include "gui/panels/pointed.hpp"

namespace kvscope::gui {

// Named places of the window: where programs that drive it may click. The state file lists them.

/// A name and a place, in pixels of the window.
struct Landmark {
  std::string name;
  ImVec2 low;
  ImVec2 high;
  ImVec2 middle() const { return {(low.x + high.x) / 2, (low.y + high.y) / 2}; }
};
using Landmarks = std::vector<Landmark>;

/// Gives ImGui's last item a name, if its middle can be seen. Of two items of one name in a
/// frame, the later counts.
void landmark(std::string name);
/// Those named since the last call.
Landmarks take_landmarks();

/// In the middle of what is left of the window: a headline, a sentence with the next step.
void empty_place(const PanelContext& context, std::string_view headline, std::string_view sentence);

/// A sentence in the colour of errors, wrapped; true if "Try again" was pressed.
bool error_place(const PanelContext& context, std::string_view sentence);
/// What error_place and job_place said was wrong since the last call.
std::vector<std::string> take_error_sentences();

/// How far a job is.
std::string progress_words(const JobStatus& status);
void progress_bar(const JobStatus& status, float width);

/// Over the picture, that of before or a part: pale, but for the box that says so. What is clicked
/// goes through.
void veil(const PanelContext& context);

/// What was pressed in the report of a computation.
enum class SlotAction { none, cancel, retry };

/// Progress or failure of a job: small in the top right corner of the window if a value is shown
/// below it, else in the middle.
SlotAction job_place(const PanelContext& context, const JobStatus& status, bool has_value,
                     bool fresh);

/// job_place() of a job that can be cancelled and tried again.
template <class Slot>
void report_job(const PanelContext& context, Slot& slot, const JobStatus& status, bool has_value,
                bool fresh) {
  const SlotAction action = job_place(context, status, has_value, fresh);
  if (action == SlotAction::cancel) slot.cancel();
  if (action == SlotAction::retry) slot.retry();
}

/// The same for an AsyncValue; returns true if there is a value to draw (perhaps of
/// the key before).
template <class T>
bool async_place(const PanelContext& context, AsyncValue<T>& slot, const AsyncView<T>& view) {
  report_job(context, slot, view.status, view.value != nullptr, view.fresh);
  return view.value != nullptr;
}

/// Work beside the frames, work(JobContext&), whose value goes to done(); what it throws becomes a
/// notice.
template <class Work, class Done>
void run_beside(Session& session, std::string title, Lane lane, Work work, Done done) {
  using Value = std::invoke_result_t<Work&, JobContext&>;
  using Outcome = std::pair<std::optional<Value>, std::string>;
  session.bench().jobs.start(
      std::move(title), lane,
      [work = std::move(work)](JobContext& job) mutable -> std::any {
        try {
          return Outcome{work(job), ""};
        } catch (const Interrupted&) {
          throw;
        } catch (const std::exception& error) {
          return Outcome{std::nullopt, error.what()};
        }
      },
      [&session, done = std::move(done)](std::any value) mutable {
        auto [found, problem] = std::any_cast<Outcome>(std::move(value));
        found ? done(std::move(*found)) : session.notify(problem);
      });
}

/// "No trace is open", with what to do; true if it was drawn: the panel has nothing else to show.
bool needs_trace(const PanelContext& context);

/// One line of switches: the chosen one in the accent colour. True if the choice changed.
bool segmented(const char* id, int& chosen, std::span<const std::string_view> names);
/// The same for an enum with EnumNames; underscores are shown as spaces.
template <class E>
bool segmented(const char* id, E& value) {
  int chosen = static_cast<int>(value);
  const bool changed = segmented(id, chosen, EnumNames<E>::value);
  if (changed) value = static_cast<E>(chosen);
  return changed;
}

/// A drop-down of words; true if another one was chosen.
bool choose(const char* id, std::string& chosen, const std::vector<std::string>& names,
            float width = 0.0f);

/// The same for an enum, with these words for its values.
template <class E>
requires std::is_enum_v<E>
bool choose(const char* id, E& value, const std::vector<std::string>& words, float width) {
  std::string chosen = words.at(static_cast<std::size_t>(value));
  if (!choose(id, chosen, words, width)) return false;
  value = static_cast<E>(std::ranges::find(words, chosen) - words.begin());
  return true;
}

/// The same for an enum with EnumNames; underscores are shown as spaces.
template <class E>
requires std::is_enum_v<E>
bool choose(const char* id, E& value, float width = 0.0f) {
  std::vector<std::string> words(EnumNames<E>::value.begin(), EnumNames<E>::value.end());
  for (std::string& word : words) std::ranges::replace(word, '_', ' ');
  return choose(id, value, words, width);
}

/// A slider, box or switch for every field of an options struct, with its help as a tooltip.
/// Returns the name of the field that changed, or "". `narrowed` may give a field another range;
/// one that it gives no name is left out.
template <class Options>
std::string field_controls(Options& options,
                           const std::function<Field(const Field&)>& narrowed = {});

/// What is said of one member of an options struct.
template <class Options>
const Field& field_at(const Options& all, const auto& member) {
  const auto* at = reinterpret_cast<const std::byte*>(std::addressof(member));
  for (const Option& option : kvscope::options_of<Options>()) {
    if (reinterpret_cast<const std::byte*>(std::addressof(all)) + option.at == at)
      return option.field;
  }
  throw std::logic_error("no option of these");
}

/// Words that fit into a width, their middle left out where they do not.
std::string fitting(std::string_view words, float width);
/// Words in one line whatever their length, so that what stands below never moves; whole in a
/// tooltip.
void one_line(const std::string& words);
void one_line(plot::Colour colour, const std::string& words);
/// Words in lines that fit what is left of the window, broken at spaces only: numbers stay whole.
void wrapped_words(std::string_view words);
/// Words in a colour, in lines that fit.
void coloured_words(plot::Colour colour, const std::string& words);
/// The lines that they take in a width.
std::string wrap_words(std::string_view words, float width);

/// A part of a panel that does not scroll; to be ended with ImGui::EndChild().
void begin_part(const char* id, ImVec2 size);

/// A dialog in the middle of the window; true if it is open: ends with ImGui::EndPopup(). `size` in
/// points, at most 0.9 of the window; a height of 0: as high as its contents.
bool begin_dialog(const Look& look, const char* id, bool& should_open, ImVec2 size);

/// Lines "name  value" in a tooltip at the mouse, and what they are about.
void detail_tooltip(const HoverLines& lines, const Pointed& about = {});
/// What detail_tooltip showed since the last call, for the state file.
HoverLines collect_hover_lines();

/// "12  “ the”  (id 262)" of a position.
std::string token_words(const Document& document, Index pos);

/// A sentence shown beside the mouse once it has rested on the last item for a moment.
void help_tooltip(std::string_view sentence);
/// A check box with an edge: one without a tick is seen, too. True if it was changed.
bool check_box(const char* words, bool* value);
/// The keyboard goes to the first control of the current window, which is marked; call before it is
/// drawn.
void keyboard_here();
/// A control is marked by the keyboard: Enter is for it.
bool has_keyboard_mark();
/// Arrows belong to the last item in this frame, and do not go from control to control.
void claim_arrows();
/// True if one was claimed since the last call.
bool take_arrow_claim();
/// True if a sentence waits for its moment: a frame is needed though nothing will happen.
bool take_tooltip_wait();

// ---- details ----

namespace detail {
bool index_control(const Field& field, Index& value);
bool number_control(const Field& field, double& value);
bool flag_control(const Field& field, bool& value);
bool word_control(const Field& field, std::string& value);
bool enum_control(const Field& field, int& value, std::span<const std::string_view> names);
}  // namespace detail

template <class Options>
std::string field_controls(Options& options, const std::function<Field(const Field&)>& narrowed) {
  std::string changed;
  visit_fields(options, [&](const Field& any, auto& value) {
    const Field field = narrowed ? narrowed(any) : any;
    if (field.name.empty()) return;
    using T = std::remove_cvref_t<decltype(value)>;
    bool here = false;
    if constexpr (std::same_as<T, EnumRef>) {
      int chosen = value.index();
      here = detail::enum_control(field, chosen, value.names);
      if (here) value = chosen;
    } else if constexpr (std::same_as<T, bool>) {
      here = detail::flag_control(field, value);
    } else if constexpr (std::integral<T>) {
      Index number = static_cast<Index>(value);
      here = detail::index_control(field, number);
      if (here) value = static_cast<T>(number);
    } else if constexpr (std::floating_point<T>) {
      here = detail::number_control(field, value);
    } else {
      here = detail::word_control(field, value);
    }
    if (here) changed = std::string(field.name);
  });
  return changed;
}

}  // namespace kvscope::gui

// What panels say in the same words and shapes: progress, failures, empty places, options, details.
#pragma once

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/fields.hpp"
#include "gui/model/jobs/async_queue.hpp"
#include "gui/model/jobs/async_value.hpp"
#include "gui/model/jobs/jobs.hpp"
#include "gui/panels/panel.hpp"

namespace kvscope::gui {

/// In the middle of what is left of the window: a headline, a sentence with the next step.
void empty_place(const PanelContext& context, std::string_view headline, std::string_view sentence);

/// A sentence in the colour of errors, wrapped; true if "Try again" was pressed.
bool error_place(const PanelContext& context, std::string_view sentence);
/// What error_place and job_place said was wrong since the last call.
std::vector<std::string> take_error_sentences();

/// What was pressed in the report of a computation.
enum class SlotAction { none, cancel, retry };

/// Progress or failure of a job: small in the top right corner of the window if a value is shown
/// below it, else in the middle.
SlotAction job_place(const PanelContext& context, const JobStatus& status, bool has_value,
                     bool fresh);

/// job_place for an AsyncValue; returns true if there is a value to draw (perhaps of
/// the key before).
template <class T>
bool async_place(const PanelContext& context, AsyncValue<T>& slot, const AsyncView<T>& view) {
  const SlotAction action = job_place(context, view.status, view.value != nullptr, view.fresh);
  if (action == SlotAction::cancel) slot.cancel();
  if (action == SlotAction::retry) slot.retry();
  return view.value != nullptr;
}

/// The same for an AsyncQueue: what runs and how many are left; true if anything was said.
template <class T>
bool queue_place(const PanelContext& context, AsyncQueue<T>& queue, const QueueView<T>& view,
                 bool has_value) {
  const bool is_worth_saying = view.is_busy() || has_value || view.n_known == 0;
  if (view.is_complete() || !is_worth_saying) return false;
  JobStatus status = view.status;
  if (view.is_busy() && view.values.size() > 1)
    status.title += fmt::format(" ({} of {})", view.n_known + 1, view.values.size());
  const SlotAction action = job_place(context, status, has_value, /*fresh=*/false);
  if (action == SlotAction::cancel) queue.cancel();
  if (action == SlotAction::retry) queue.retry();
  return true;
}

/// "No trace is open", with what to do; true if it was drawn: the panel has nothing else to show.
bool needs_trace(const PanelContext& context);
/// The same for the second trace: `why` completes "This view compares two models: ...".
bool needs_second(const PanelContext& context, std::string_view why);

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
  value = static_cast<E>(std::find(words.begin(), words.end(), chosen) - words.begin());
  return true;
}

/// The same for an enum with EnumNames; underscores are shown as spaces.
template <class E>
requires std::is_enum_v<E>
bool choose(const char* id, E& value, float width = 0.0f) {
  std::vector<std::string> words(EnumNames<E>::value.begin(), EnumNames<E>::value.end());
  for (std::string& word : words) std::replace(word.begin(), word.end(), '_', ' ');
  return choose(id, value, words, width);
}

/// A slider, box or switch for every field of an options struct, with its help as a tooltip.
/// Returns the name of the field that changed, or "". `narrowed` may give a field another range.
template <class Options>
std::string field_controls(Options& options,
                           const std::function<Field(const Field&)>& narrowed = {});

/// The help of one field of an options struct, for switches that are drawn by hand.
template <class Options>
std::string field_help(std::string_view name) {
  for (const Option& option : options_of<Options>()) {
    if (option.field.name == name) return std::string(option.field.help);
  }
  return "";
}

/// Words that fit into a width, their middle left out where they do not.
std::string fitting(std::string_view words, float width);
/// Words in one line whatever their length, so that what stands below never moves; whole in a
/// tooltip.
void one_line(const std::string& words);
/// Words in lines that fit what is left of the window, broken at spaces only: numbers stay whole.
void wrapped_words(std::string_view words);
/// The lines that they take in a width.
std::string wrap_words(std::string_view words, float width);

/// Lines "name  value" in a tooltip at the mouse.
void detail_tooltip(const HoverLines& lines);
/// What detail_tooltip showed since the last call, for the state file.
HoverLines collect_hover_lines();

/// "12  “ the”  (id 262)" of a position, for tooltips and the status bar.
std::string token_words(const Document& document, Index pos);

/// A sentence shown beside the mouse once it has rested on the last item for a moment.
void help_tooltip(std::string_view sentence);
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

// The base of panels that compute values of the selected trace and draw figures of them: it looks
// after the switches that sessions keep, the trace, what is still being computed, and the figure on
// screen.
//
//   AskingPanel                     computes values: ask()
//   TracePanel<Switches>            draw_trace(): what is drawn while a trace is open
//   FigurePanel<Value, Switches>    question(): what to compute; make_picture(): its figure; then
//                                   draw_over() and draw_below() say what stands on and under it
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/fields_json.hpp"
#include "gui/model/jobs/async_value.hpp"
#include "gui/panels/panel.hpp"
#include "gui/panels/widgets.hpp"
#include "gui/render/figure_view.hpp"

namespace kvscope::gui {

/// What a lasso went around becomes the session's, and is told.
void take_brush(PanelContext& context, Brush brush);

/// Shows a figure; frames follow while it is rough.
void show_figure(PanelContext& context, FigureView& view, const plot::Figure& figure, ImVec2 size,
                 const FigureStyle& style);
/// The same on the panel's own ground.
void show_figure(PanelContext& context, FigureView& view, const plot::Figure& figure, ImVec2 size,
                 bool takes_lasso = false);

/// The values of all enums and flags among the switches.
template <class Switches>
std::vector<PanelChoice> choices_of(const Switches& switches) {
  std::vector<PanelChoice> all;
  visit_fields(switches, [&](const Field& field, const auto& value) {
    using T = std::remove_cvref_t<decltype(value)>;
    const auto add = [&](std::string_view word, nlohmann::ordered_json chosen) {
      std::string words = fmt::format("{}: {}", field.name, word);
      std::ranges::replace(words, '_', ' ');
      const nlohmann::ordered_json options = {{snake_case(field.name), std::move(chosen)}};
      all.push_back({words, std::string(field.help), options.dump()});
    };
    if constexpr (std::same_as<T, EnumRef>) {
      for (const std::string_view name : value.names) add(name, std::string(name));
    } else if constexpr (std::same_as<T, bool>) {
      add("on", true);
      add("off", false);
    }
  });
  return all;
}

/// A panel that computes values. busy_ is set to false when a frame of it begins.
class AskingPanel : public Panel {
 public:
  bool is_busy() const override { return busy_; }

 protected:
  /// As AsyncValue::ask.
  template <class T, class... Asked>
  AsyncView<T> ask(PanelContext& context, AsyncValue<T>& slot, const std::string& key,
                   const JobRequest& request, Asked... asked) {
    const auto view = slot.ask(context.session.bench(), key, request, std::move(asked)...);
    busy_ = busy_ || view.is_pending();
    return view;
  }

  bool busy_ = false;  // something is being computed
};

/// A panel about the selected trace. Switches list their fields (core/base/fields.hpp).
template <class Switches>
class TracePanel : public AskingPanel {
 public:
  void draw(PanelContext& context) final {
    busy_ = false;
    figure_.begin();
    document_ = context.session.document() ? main_of(context.session) : nullptr;
    second_ = document_ ? second_of(context.session) : nullptr;
    sources_ = document_ ? documents_key(*document_, second_.get()) : std::string();
    // A recording that has grown is the same one: its picture stays until the next is there.
    const std::string recordings =
        document_ ? document_->growing_key() + (second_ ? second_->growing_key() : std::string())
                  : std::string();
    if (recordings != recordings_) {
      asked_.reset();
      forget();
    }
    recordings_ = recordings;
    if (!needs_trace(context)) draw_trace(context);
  }
  nlohmann::ordered_json options() const override { return fields_to_json(switches_); }
  void set_options(const nlohmann::ordered_json& options) override {
    Switches switches = switches_;
    fields_from_json(options, switches);
    check_fields(switches);
    switches_ = std::move(switches);
  }
  std::vector<PanelChoice> choices() const override { return choices_of(switches_); }
  std::optional<plot::Figure> figure() const override { return figure_.current(); }
  std::optional<ImVec2> place(std::size_t panel, double x, double y) const override {
    return figure_.place(panel, x, y);
  }
  bool is_busy() const override { return busy_ || figure_.is_rough(); }

 protected:
  virtual void draw_trace(PanelContext& context) = 0;
  /// The trace that pictures are made of.
  virtual std::shared_ptr<const Document> main_of(const Session& session) const {
    return session.document();
  }
  /// What pictures are made of beside the selected trace: the draft of a method that needs one, or
  /// what the trace is compared with. Null: nothing.
  virtual std::shared_ptr<const Document> second_of(const Session&) const { return nullptr; }
  /// Pictures of other traces are not shown while these traces' are made: lets go of them, and of
  /// whatever else keeps those traces open.
  virtual void forget() = 0;

  /// Since the last call something was selected or switched: the questions are other ones.
  bool has_changed(const Session& session) {
    std::pair now{session.revision(), switches_};
    if (asked_ == now) return false;
    asked_ = std::move(now);
    return true;
  }

  Switches switches_;
  std::shared_ptr<const Document> document_;  // null while no trace is open
  std::shared_ptr<const Document> second_;    // second_of() in this frame
  std::string sources_;                       // the two, as keys of the cache begin
  std::string recordings_;                    // the two, whatever they have grown to
  FigureView figure_;

 private:
  std::optional<std::pair<std::uint64_t, Switches>> asked_;  // at the last has_changed()
};

/// A panel that shows a value as a figure; which of several, its switches say.
template <class Value, class Switches>
class FigurePanel : public TracePanel<Switches> {
 public:
  std::optional<plot::Figure> figure() const override {
    return value_ ? this->figure_.current() : std::nullopt;
  }

 protected:
  struct Question {
    std::string key;  // of the cache, behind sources_
    JobRequest request;
    std::function<Value(JobContext&)> compute;
    std::string rough_key = {};                            // empty: there is no
    std::function<Value(JobContext&)> compute_rough = {};  // rough value to be shown before
  };
  /// Empty: there is nothing to show, which was said.
  virtual std::optional<Question> question(PanelContext& context) = 0;
  /// The figure of value_ under the switches.
  virtual plot::Figure make_picture() = 0;
  /// True: the value has nothing to draw, which was said.
  virtual bool lacks_figure(PanelContext&) { return false; }
  /// Pixels that draw_below() needs.
  virtual float height_below(PanelContext&) { return 0.0f; }
  virtual void draw_over(PanelContext&) {}
  /// draw_over() asks the figure for what a lasso went around.
  virtual bool takes_lasso() const { return false; }
  virtual void follow(PanelContext& context, const FigureHit& hit) = 0;
  virtual void draw_below(PanelContext&) {}

  /// The picture is made anew, with the same value and switches.
  void renew_picture() { drawn_.reset(); }

  void forget() override {
    slot_.clear();
    value_.reset();
    drawn_.reset();
  }

  void draw_trace(PanelContext& context) final {
    const auto asked = question(context);
    if (!asked) return;
    const std::string key = this->sources_ + asked->key;
    const auto view = asked->compute_rough
                          ? this->ask(context, slot_, key, asked->request, asked->compute,
                                      this->sources_ + asked->rough_key, asked->compute_rough)
                          : this->ask(context, slot_, key, asked->request, asked->compute);
    if (view.value != value_) drawn_.reset();
    value_ = view.value;
    if (!async_place(context, slot_, view)) return;
    if (lacks_figure(context)) return;
    if (drawn_ != this->switches_) {
      picture_ = make_picture();
      drawn_ = this->switches_;
      this->figure_.renew();
    }
    ImVec2 size = ImGui::GetContentRegionAvail();
    if (const float below = height_below(context); below > 0.0f)
      size.y = std::max(context.look.px(60), size.y - below);
    show_figure(context, this->figure_, picture_, size, takes_lasso());
    draw_over(context);
    if (const auto& hit = this->figure_.hit()) follow(context, *hit);
    draw_below(context);
  }

  AsyncValue<Value> slot_;
  std::shared_ptr<const Value> value_;
  plot::Figure picture_;  // of the value

 private:
  std::optional<Switches> drawn_;  // with which switches
};

}  // namespace kvscope::gui

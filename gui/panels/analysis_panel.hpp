// The panel of an analysis: it asks for it of what is selected, lets its figure kind draw it, and
// says what its marks stand for. An analysis adds a card:
//
//   return std::make_unique<AnalysisPanel<TheoremB1Options>>(info, card, analyze);
#pragma once

#include <fmt/format.h>
#include <imgui.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "gui/model/results/analysis_value.hpp"
#include "gui/model/results/compact_figure.hpp"
#include "gui/model/results/table_view.hpp"
#include "gui/model/traces/trace_part.hpp"
#include "gui/panels/accent_marks.hpp"
#include "gui/panels/panel_base.hpp"
#include "gui/panels/switch_row.hpp"

namespace kvscope::gui {

/// Less room than this, in points, is little for two panels beside each other.
inline constexpr float kOnePanelWidth = 640.0f;
inline constexpr float kOnePanelHeight = 320.0f;
/// And than this, for a title.
inline constexpr float kCompactHeight = 220.0f;

template <class Options>
struct AnalysisSwitches {
  bool of_second = option(of_second, "of-second", false, "the second trace instead of the first");
  std::string metric =
      option(metric, "metric", "", "what the figure shows");  // empty: the card's first
  Options analysis;
  bool operator==(const AnalysisSwitches&) const = default;
};

template <class Options>
class AnalysisPanel : public FigurePanel<AnalysisValue, AnalysisSwitches<Options>> {
  using Base = FigurePanel<AnalysisValue, AnalysisSwitches<Options>>;

 public:
  /// `second`: null, or the draft's trace.
  using Analyze = std::function<void(const TraceSource& trace, const TraceSource* second,
                                     const Options&, const AnalysisRun&)>;

  AnalysisPanel(PanelInfo info, AnalysisCard card, Analyze analyze)
      : info_(std::move(info)), card_(std::move(card)), analyze_(std::move(analyze)) {}

  PanelInfo info() const override { return info_; }

  void controls(PanelContext& context) override {
    std::string& metric = this->switches_.metric;
    if (metric.empty() && !card_.metrics.empty()) metric = card_.metrics.front();
    if (card_.metrics.size() > 1) {
      float width = 0.0f;
      for (const std::string& name : card_.metrics)
        width = std::max(width, ImGui::CalcTextSize(name.c_str()).x);
      next_switch();
      choose("##metric", metric, card_.metrics,
             std::min(width, context.look.px(150)) + 2.0f * ImGui::GetFrameHeight());
    }
    if (card_.scope != AnalysisScope::pair && context.session.second())
      switch_box(this->switches_, this->switches_.of_second, "2nd");
    next_switch();
    if (ImGui::Button("Options ▾")) ImGui::OpenPopup("options");
    landmark("options of " + info_.name);
    if (!ImGui::BeginPopup("options")) return;
    // What all panels share stands in the bar of the window.
    float n_fields = 0.0f;
    visit_fields(this->switches_.analysis, [&](const Field& field, const auto&) {
      n_fields += is_shared(field.name) ? 0.0f : 1.0f;
    });
    ImGui::BeginChild("fields",
                      {context.look.px(300), n_fields * ImGui::GetFrameHeightWithSpacing()}, false,
                      ImGuiWindowFlags_NavFlattened);
    field_controls(this->switches_.analysis,
                   [&](const Field& field) { return is_shared(field.name) ? Field{} : field; });
    ImGui::EndChild();
    ImGui::EndPopup();
  }

  nlohmann::ordered_json options() const override {
    auto json = Base::options();
    visit_fields(this->switches_.analysis, [&](const Field& field, const auto&) {
      if (is_shared(field.name)) json.erase(snake_case(field.name));
    });
    return json;
  }
  void set_options(const nlohmann::ordered_json& options) override {
    nlohmann::ordered_json now = options;
    for (const auto& [before, after] : card_.renamed) {  // as older sessions have it
      if (!now.contains(before) || !now[before].is_string()) continue;
      now[after] = now[before];
      now.erase(before);
    }
    Base::set_options(now);
    const auto& metrics = card_.metrics;  // a session of before may have others
    if (std::ranges::find(metrics, this->switches_.metric) == metrics.end())
      this->switches_.metric.clear();
  }
  std::vector<PanelChoice> choices() const override {
    std::vector<PanelChoice> all = Base::choices();
    std::erase_if(all, [&](const PanelChoice& choice) {
      const std::string name = choice.words.substr(0, choice.words.find(':'));
      return is_shared(name) || (name == "of-second" && card_.scope == AnalysisScope::pair);
    });
    return all;
  }

  std::optional<std::string> csv() const override {
    if (card_.lists_figure) return Base::csv();
    return this->value_ ? std::optional(this->value_->csv()) : std::nullopt;
  }

 protected:
  std::shared_ptr<const Document> main_of(const Session& session) const override {
    const bool is_second = this->switches_.of_second && card_.scope != AnalysisScope::pair;
    return is_second && session.second() ? session.second() : session.document();
  }

  /// A mark of the figure.
  struct MarkPlace {
    std::size_t panel;
    std::size_t row;
    double x;
    double y;
  };
  const std::vector<MarkPlace>& places_of(Index query) const {
    static const std::vector<MarkPlace> kNone;
    const auto found = places_.find(query);
    return found == places_.end() ? kNone : found->second;
  }

  /// The panel's options, with what the session says of them.
  virtual Options asked(const Session&) const { return this->switches_.analysis; }
  /// Options that asked() takes from the session.
  virtual bool is_shared(std::string_view) const { return false; }
  /// What the marks lack, behind the line below the figure: "; ...".
  virtual std::string remark() const { return {}; }
  virtual AnalysisCard card_for(const Options&) const { return card_; }

  std::optional<typename Base::Question> question(PanelContext& context) override {
    const Options options = asked(context.session);
    const AnalysisCard card = card_for(options);
    const Selection& selection = context.session.selection();
    AnalysisPart part;
    std::string what = this->document_->name();
    if (card.scope == AnalysisScope::pair) {
      what = fmt::format("Verifier: {}; draft: {}", what, this->second_->name());
    } else if (card.scope == AnalysisScope::layer) {
      part = {selection.layer, std::nullopt};
      what += fmt::format(", layer {}", selection.layer);
    } else if (card.scope != AnalysisScope::trace) {
      part = {selection.layer, selection.q_head};
      what += fmt::format(", layer {}, query head {}", selection.layer, selection.q_head);
    }
    const auto compute = [=, analyze = analyze_, document = this->document_,
                          second = this->second_](JobContext& job) {
      return AnalysisValue(
          card, part, what,
          [&](const AnalysisRun& run) {
            const TraceSource* other = second ? &second->source() : nullptr;
            if (!part.q_head) return analyze(document->source(), other, options, run);
            const TraceInfo& info = document->source().info();
            std::vector<Index> heads = {*part.q_head};
            if (card.scope == AnalysisScope::heads) heads = info.q_heads;
            if (card.scope == AnalysisScope::group)
              heads = recorded_group_of(info, *part.layer, *part.q_head);
            const TracePart one(document->source(), selected_part(info, {{*part.layer}, heads}));
            analyze(one, other, options, run);
          },
          job);
    };
    const std::string key = fmt::format("{}/{}/{}/{}", info_.name, part.layer.value_or(-1),
                                        part.q_head.value_or(-1), fields_to_json(options).dump());
    return typename Base::Question{
        .key = key, .request = {fmt::format("{} of {}", info_.title, what)}, .compute = compute};
  }

  bool lacks_figure(PanelContext& context) override {
    const ImVec2 room = ImGui::GetContentRegionAvail();
    const bool is_little =
        room.x < context.look.px(kOnePanelWidth) || room.y < context.look.px(kOnePanelHeight);
    const bool is_low = room.y < context.look.px(kCompactHeight);
    const std::tuple now{this->value_, this->switches_.metric, is_little, is_low};
    if (made_ != now) {
      made_ = now;
      problem_.clear();
      places_.clear();
      try {
        next_ = this->value_->figure(this->switches_.metric);
        if (is_little && card_.first_alone) next_.panels.resize(1);
        if (is_low && next_.panels.size() == 1) {
          const plot::Panel& panel = next_.panels[0];
          next_ = compact_figure(next_, panel.x.label, panel.y.label);
        }
        this->renew_picture();
        find_places();
      } catch (const ConfigError& error) {
        problem_ = error.what();
      }
    }
    if (problem_.empty()) return false;
    empty_place(context, "Nothing to show", problem_);
    return true;
  }

  plot::Figure make_picture() override { return next_; }

  std::string selected_words(const PanelContext& context) const {
    const Index wanted = context.session.selection().query;
    const auto query = this->value_->nearest_query(wanted);
    if (!query) return {};
    const std::string& metric = this->switches_.metric;
    const std::string words =
        this->value_->words(*query, metric.empty() ? card_.metrics.front() : metric);
    const std::string which =
        *query == wanted
            ? fmt::format("query {}", wanted)
            : fmt::format("query {} was not measured; the nearest, {}", wanted, *query);
    return which + ": " + (words.empty() ? "no number" : words) +
           (places_.empty() ? "; the points are too many to be marked" : "") + remark();
  }

  float height_below(PanelContext& context) override {
    const std::string words = selected_words(context);
    is_low_ = ImGui::GetContentRegionAvail().y < context.look.px(kOnePanelHeight);
    if (words.empty()) return 0.0f;
    return is_low_ ? ImGui::GetTextLineHeightWithSpacing() : accent_words_height(words);
  }

  void draw_below(PanelContext& context) override {
    const std::string words = selected_words(context);
    if (!words.empty()) is_low_ ? one_line(words) : accent_words(context, words);
  }

  bool takes_lasso() const override { return true; }

  /// The marks of what is in the lasso, what is pointed at, and the selected query, or the nearest
  /// that was measured.
  void draw_over(PanelContext& context) override {
    if (const auto& lasso = this->figure_.lasso()) take_brush(context, brush_of(*lasso));
    const Selection& selection = context.session.selection();
    const auto query = this->value_->nearest_query(selection.query);
    if (!query) return;
    cross_brushed(context, *query);
    const std::vector<MarkPlace>& places = places_of(*query);
    if (!this->figure_.hit() || !this->figure_.hit()->mark) {  // which the figure marks
      const Pointed& at = pointed();
      for (const MarkPlace& place : places) {
        if (is_of_key(place, at)) ring_pointed(context, place);
      }
      const std::vector<MarkPlace>& others = places_of(at.query.value_or(-1));
      for (const MarkPlace& place : others) {
        if (others.size() <= next_.panels.size()) ring_pointed(context, place);
      }
    }
    for (const MarkPlace& place : places) {
      AccentMarks marks(context, this->figure_, place.panel);
      const bool is_key = selection.key && is_of_key(place, Pointed::at_key(*selection.key));
      is_key || places.size() <= next_.panels.size() ? marks.ring(place.x, place.y)
                                                     : marks.dot(place.x, place.y);
    }
  }

  std::optional<std::size_t> row_of(const FigureHit& hit) const {
    if (hit.of) return hit.of;
    return hit.row && hit.col ? this->value_->row_of_cell(*hit.row, *hit.col) : std::nullopt;
  }

  void follow(PanelContext& context, const FigureHit& hit) override {
    if (hit.row && hit.col) {
      const RowTarget head = target_of_cell(next_.panels[hit.panel], *hit.row, *hit.col);
      if (!head.empty()) {
        detail_tooltip({{"cell", head.words()},
                        {"value", std::isnan(*hit.value) ? "not measured, or dense"
                                                         : fmt::format("{:.4g}", *hit.value)}},
                       Pointed::at(head));
        if (hit.clicked) gui::go_to(context.session, head, info_.title + " click");
        return;
      }
    }
    const auto row = row_of(hit);
    if (!row) return;
    const auto query = this->value_->query_of(*row);
    const auto key = this->value_->key_of(*row);
    HoverLines lines;
    if (query) lines.emplace_back("query", token_words(*this->document_, *query));
    const Index page = this->value_->card().page_size;
    if (key && page > 1) {
      lines.emplace_back("page", fmt::format("keys {} to {}", *key, *key + page - 1));
    } else if (key) {
      lines.emplace_back("key", token_words(*this->document_, *key));
    }
    for (auto& line : this->value_->lines(*row)) lines.push_back(std::move(line));
    const TokenRange keys = key ? TokenRange{*key, *key + std::max<Index>(1, page)} : TokenRange{};
    detail_tooltip(lines, {.query = query, .keys = keys});
    if (!hit.clicked || !query) return;
    const std::string step = info_.title + " click";
    if (key) {
      context.session.select_pair(step, *query, *key);
    } else {
      context.session.select(step, [&](Selection& s) { s.query = *query; });
    }
  }

 private:
  bool is_of_key(const MarkPlace& place, const Pointed& at) const {
    const auto key = this->value_->key_of(place.row);
    return key && at.has_key(*key, std::max<Index>(1, this->value_->card().page_size));
  }
  /// The queries, and keys or keys of pages, that these points stand for.
  Brush brush_of(const std::vector<LassoedPoint>& lasso) const {
    Brush brush;
    for (const LassoedPoint& point : lasso) {
      const auto query = this->value_->query_of(point.of);
      const auto key = this->value_->key_of(point.of);
      if (query) brush.queries.push_back(*query);
      for (Index i = 0; key && i < std::max<Index>(1, this->value_->card().page_size); ++i)
        brush.keys.push_back(*key + i);
    }
    return brush;
  }
  /// Points of the lasso's queries; of its keys, those of these queries and of the selected one.
  void cross_brushed(const PanelContext& context, Index selected) const {
    const Brush& brush = context.session.brush();
    if (brush.empty()) return;
    const auto cross = [&](Index query, bool is_in) {
      for (const MarkPlace& place : places_of(query)) {
        const auto key = this->value_->key_of(place.row);
        const Index n = std::max<Index>(1, this->value_->card().page_size);
        const auto next = std::ranges::lower_bound(brush.keys, key.value_or(0));
        if (key ? next != brush.keys.end() && *next < *key + n : is_in)
          AccentMarks(context, this->figure_, place.panel).cross(place.x, place.y);
      }
    };
    for (const Index query : brush.queries) cross(query, /*is_in=*/true);
    if (!std::ranges::binary_search(brush.queries, selected)) cross(selected, /*is_in=*/false);
  }
  void ring_pointed(const PanelContext& context, const MarkPlace& place) const {
    AccentMarks(context, this->figure_, place.panel, context.look.ink).ring(place.x, place.y);
  }

  void find_places() {
    for (std::size_t panel = 0; panel < next_.panels.size(); ++panel) {
      for (const plot::Mark& mark : next_.panels[panel].marks) {
        const auto* points = std::get_if<plot::Scatter>(&mark);
        for (std::size_t i = 0; points != nullptr && i < points->of.size(); ++i) {
          if (const auto query = this->value_->query_of(points->of[i]))
            places_[*query].push_back({panel, points->of[i], points->x[i], points->y[i]});
        }
      }
    }
  }

  PanelInfo info_;
  AnalysisCard card_;
  Analyze analyze_;
  std::tuple<std::shared_ptr<const AnalysisValue>, std::string, bool, bool>
      made_;  // of what next_ is
  plot::Figure next_;
  bool is_low_ = false;
  std::string problem_;
  std::map<Index, std::vector<MarkPlace>> places_;  // by queries
};

}  // namespace kvscope::gui

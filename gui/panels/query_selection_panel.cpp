// S_q against the largest attention weight of the selected head, with the queries that QuoKA keeps,
// and the correlation of both in every head.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/base/fields_json.hpp"
#include "gui/model/queries/query_selection_feed.hpp"
#include "gui/model/queries/query_selection_view.hpp"
#include "gui/model/results/compact_figure.hpp"
#include "gui/panels/accent_marks.hpp"
#include "gui/panels/panel_base.hpp"
#include "gui/panels/switch_row.hpp"
#include "gui/render/figure_view.hpp"

namespace kvscope::gui {

namespace {

/// Two decimals, with a minus as wide as the digits; a dash where there is no number.
std::string coefficient_text(double value) {
  if (std::isnan(value)) return "—";
  const std::string digits = fmt::format("{:.2f}", std::abs(value));
  return value < 0.0 && digits != "0.00" ? "−" + digits : digits;
}

class QuerySelectionPanel final : public TracePanel<QuerySelectionSwitches> {
 public:
  PanelInfo info() const override {
    return {"query-selection", "Query selection",
            "QuoKA's score S_q of every query against the largest weight of its attention row. "
            "Click a point to go to its token, a cell to go to its head."};
  }

  void controls(PanelContext& context) override {
    switch_label("mean of");
    switch_buttons(switches_, switches_.span);
    next_switch();
    if (ImGui::Button("View ▾")) ImGui::OpenPopup("view");
    if (!ImGui::BeginPopup("view")) return;
    switch_box(switches_, switches_.skip_sink, "Leave the sink out");
    switch_box(switches_, switches_.picks, "Show the queries that QuoKA keeps of the chunk");
    ImGui::SetNextItemWidth(context.look.px(90));
    const Index step = 1;
    if (ImGui::InputScalar("recent keys left out", ImGuiDataType_S64, &switches_.skip_recent,
                           &step)) {
      switches_.skip_recent = std::clamp<Index>(switches_.skip_recent, 0, 4096);
    }
    help_tooltip(field_at(switches_, switches_.skip_recent).help);
    if (ImGui::Button("Correlations of all layers")) feed_.ask_all_layers();
    help_tooltip("Long traces compute the map of heads one layer at a time, as layers are visited");
    ImGui::EndPopup();
  }

  void draw_trace(PanelContext& context) override {
    feed_.update(context.session, switches_);
    const bool has_value = feed_.value() != nullptr;
    report_job(context, feed_, feed_.status(), has_value, feed_.is_fresh());
    if (!has_value) return;
    try {
      make_figures(context);
    } catch (const ConfigError& e) {
      empty_place(context, "Nothing to show", e.what());
      return;
    }
    lay_out(context);
  }

  std::optional<plot::Figure> figure() const override {
    if (!value_ || scatter_.panels.empty()) return std::nullopt;
    plot::Figure seen = scatter_;
    if (figure_ && figure_->is_zoomed()) {
      const plot::Figure zoomed = figure_->current_figure();
      seen.panels[0].x.range = zoomed.panels[0].x.range;
      seen.panels[0].y.range = zoomed.panels[0].y.range;
    }
    seen.caption.insert(seen.caption.begin(), trace_words_);
    return strip_.panels.empty() || feed_.layers().empty() ? seen
                                                           : joined_figure(std::move(seen), strip_);
  }

  std::optional<std::string> csv() const override {
    if (!value_) return std::nullopt;
    return query_selection_csv(head_, layer_, q_head_, document_->source().tokens(), picks_.get());
  }

  /// The queries of smallest and largest S_q; the first and the last head of the map.
  Places landmarks() const override {
    Places places;
    if (!document_) return places;
    if (figure_ && !scatter_.panels.empty()) {
      const auto& points = std::get<plot::Scatter>(scatter_.panels[0].marks[0]);
      const auto ends = std::minmax_element(points.x.begin(), points.x.end());
      for (const auto end : {ends.first, ends.second}) {
        const auto i = static_cast<std::size_t>(end - points.x.begin());
        places.add(fmt::format("query {}", points.of[i]),
                   figure_->place(0, points.x[i], points.y[i]));
      }
    }
    const TraceInfo& info = document_->info();
    const auto add_head = [&](std::size_t l, std::size_t h) {
      places.add(
          fmt::format("layer {} head {}", info.layers[l], info.q_heads[h]),
          strip_figure_->place(0, static_cast<double>(h) + 0.5, static_cast<double>(l) + 0.5));
    };
    if (strip_figure_) {
      add_head(0, 0);
      add_head(info.layers.size() - 1, info.q_heads.size() - 1);
    }
    return places;
  }

  bool is_busy() const override { return feed_.is_waiting(); }

 private:
  void forget() override {
    feed_.forget();
    value_.reset();
    picks_.reset();
    head_ = {};
    scatter_ = {};
    strip_ = {};
    figure_key_.clear();
    strip_key_.clear();
  }

  // ---- pictures ----

  void make_figures(PanelContext& context) {
    const auto& value = feed_.value();
    const Selection& selected = context.session.selection();
    // A value of another head is shown until the selected one's is there.
    const Index q_head = value->has_head(selected.q_head) ? selected.q_head : value->q_heads[0];
    const bool is_own = value->layer == selected.layer && q_head == selected.q_head;
    const auto picks = is_own ? feed_.picks() : nullptr;
    const std::string key =
        fmt::format("{} {} {} {}", static_cast<const void*>(value.get()), q_head,
                    fields_to_json(switches_).dump(), static_cast<const void*>(picks.get()));
    if (key != figure_key_) {
      value_ = value;
      layer_ = value->layer;
      q_head_ = q_head;
      head_ = head_of(*value, q_head);
      picks_ = picks;
      figure_key_ = key;
      scatter_ = {};  // if the next line throws
      scatter_ = scatter_figure(head_, layer_, q_head_, switches_, picks_.get());
      little_scatter_ = compact_figure(scatter_, "$S_q$", "Largest weight");
      trace_words_ = fmt::format("Trace {}.", document_->name());
      figure_.renew();
    } else if (scatter_.panels.empty()) {
      scatter_figure(head_, layer_, q_head_, switches_, nullptr);  // says again why there is none
    }
    const std::string strip_key =
        fmt::format("{} {} {}", feed_.layers_version(), selected.layer, selected.q_head);
    if (strip_key != strip_key_) {
      strip_key_ = strip_key;
      strip_ = strip_figure(document_->info(), feed_.layers(), selected.layer, selected.q_head);
      strip_figure_.renew();
    }
  }

  /// Wide: the numbers and the map stand at the right; else below.
  void lay_out(PanelContext& context) {
    const ImVec2 room = ImGui::GetContentRegionAvail();
    const Look& look = context.look;
    const bool wide = room.x > 1.25f * room.y && room.x > look.px(520);
    const float gap = ImGui::GetStyle().ItemSpacing.x;
    if (wide) {
      const float side = std::clamp(0.32f * room.x, look.px(190), look.px(380));
      draw_scatter(context, {room.x - side - gap, room.y});
      ImGui::SameLine();
      begin_part("side", {side, room.y});
      draw_numbers(context);
      draw_strip(context, ImGui::GetContentRegionAvail());
      ImGui::EndChild();
      return;
    }
    const float below = std::clamp(0.36f * room.y, look.px(90), look.px(260));
    if (room.y < look.px(380)) {  // too low for two pictures
      draw_scatter(context, room);
      return;
    }
    draw_scatter(context, {room.x, room.y - below - ImGui::GetStyle().ItemSpacing.y});
    const float words = std::min(look.px(190), 0.45f * room.x);
    begin_part("numbers", {words, below});
    draw_numbers(context);
    ImGui::EndChild();
    ImGui::SameLine();
    draw_strip(context, {ImGui::GetContentRegionAvail().x, below});
  }

  void draw_scatter(PanelContext& context, ImVec2 size) {
    FigureStyle style = panel_style(context);
    const bool little =
        size.x < context.look.px(kLittleWidth) || size.y < context.look.px(kLittleHeight);
    if (little) {
      style.text_em = context.fonts.small_em();
      figure_.show(context, little_scatter_, size, style, /*variant=*/true);
    } else {
      figure_.show(context, scatter_, size, style);
    }
    mark_selected(context);
    const auto& hit = figure_.hit();
    if (!hit || !hit->of) return;
    const auto pos = static_cast<Index>(*hit->of);
    explain_query(context, pos);
    if (hit->clicked) {
      context.session.select("query-selection click", [&](Selection& s) { s.query = pos; });
    }
  }

  void mark_selected(PanelContext& context) const {
    const Selection& selected = context.session.selection();
    const auto& measured = feed_.selected();
    if (!measured || layer_ != selected.layer || q_head_ != selected.q_head) return;
    AccentMarks(context, *figure_, 0)
        .ring(measured->s_q(switches_.span)[0], std::exp(measured->log_max_weight[0]));
  }

  void explain_query(PanelContext& context, Index pos) const {
    HoverLines lines = {{"query", token_words(*document_, pos)},
                        {"head", fmt::format("{} of layer {}", q_head_, layer_)}};
    const auto number = [](double x) {
      return std::isfinite(x) ? fmt::format("{:.5g}", x) : std::string("not defined");
    };
    const auto add = [&](double prompt, double chunk, double log_weight, Index key) {
      lines.emplace_back("S_q, prompt's mean", number(prompt));
      lines.emplace_back("S_q, chunk's mean", number(chunk));
      lines.emplace_back("largest weight", number(std::exp(log_weight)));
      if (key >= 0) lines.emplace_back("on key", token_words(*document_, key));
    };
    if (const auto i = head_.find(pos)) {
      add(static_cast<double>(head_.prompt_s_q[*i]), static_cast<double>(head_.chunk_s_q[*i]),
          static_cast<double>(head_.log_max_weight[*i]), head_.max_key[*i]);
      lines.emplace_back("breadth",
                         fmt::format("{:.4g} keys", static_cast<double>(head_.breadth[*i])));
    }
    if (const auto i = picks_ ? picks_->find(pos) : std::nullopt) {
      if (!head_.find(pos)) {
        add(picks_->prompt_s_q[*i], picks_->chunk_s_q[*i], picks_->log_max_weight[*i],
            picks_->max_key[*i]);
      }
      lines.emplace_back("QuoKA",
                         fmt::format("keeps it, number {} of {}", *i + 1, picks_->pos.size()));
    }
    for (const auto& [name, value] : lines) context.fonts.require(value);
    detail_tooltip(lines);
  }

  void draw_numbers(PanelContext& context) const {
    const float value_width = context.look.px(50);
    for (const Coefficient& c : coefficients_of(head_, switches_.span)) {
      ImGui::BeginGroup();
      const std::string value = coefficient_text(c.value);
      ImGui::TextUnformatted(value.c_str());
      ImGui::SameLine(value_width);
      ImGui::TextDisabled("%s", c.name.c_str());
      ImGui::EndGroup();
      help_tooltip(c.meaning);
    }
  }

  void draw_strip(PanelContext& context, ImVec2 size) {
    if (!feed_.layer_problem().empty()) {
      ImGui::BeginChild("problem", size);
      if (error_place(context, feed_.layer_problem())) feed_.retry_layer();
      ImGui::EndChild();
      return;
    }
    if (feed_.layers().empty()) {
      ImGui::BeginChild("no strip", size);
      ImGui::TextDisabled("All heads: computing layer %lld",
                          static_cast<long long>(feed_.layer_at_work().value_or(layer_)));
      ImGui::EndChild();
      return;
    }
    FigureStyle style = panel_style(context);
    style.zoomable = false;
    strip_figure_.show(context, strip_, size, style);
    const auto& hit = strip_figure_.hit();
    if (!hit || !hit->row || !hit->col) return;
    const TraceInfo& info = document_->info();
    const Index layer = info.layers[static_cast<std::size_t>(*hit->row)];
    const Index q_head = info.q_heads[static_cast<std::size_t>(*hit->col)];
    const bool known = feed_.layers().contains(layer);
    const double r = hit->value.value_or(std::nan(""));
    detail_tooltip({{"head", fmt::format("{} of layer {}", q_head, layer)},
                    {"Pearson r", !known          ? std::string("not computed: click to go there")
                                  : std::isnan(r) ? std::string("not defined")
                                                  : fmt::format("{:.4f}", r)}});
    if (hit->clicked) context.session.select_head("query-selection head", layer, q_head);
  }

  QuerySelectionFeed feed_;

  std::shared_ptr<const QuerySelectionView> value_;  // behind head_
  std::shared_ptr<const ChunkPicks> picks_;
  QuerySelectionHead head_;
  Index layer_ = 0;
  Index q_head_ = 0;
  std::string figure_key_;
  plot::Figure scatter_;
  plot::Figure little_scatter_;
  std::string trace_words_;

  std::string strip_key_;
  plot::Figure strip_;
  PanelFigure strip_figure_;
};

}  // namespace

std::unique_ptr<Panel> make_query_selection_panel() {
  return std::make_unique<QuerySelectionPanel>();
}

}  // namespace kvscope::gui

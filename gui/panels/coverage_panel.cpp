// What every head keeps under the selected method: layer x head.
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/base/number_text.hpp"
#include "gui/model/methods/coverage_view.hpp"
#include "gui/panels/accent_marks.hpp"
#include "gui/panels/panel_base.hpp"
#include "gui/panels/queue_picture.hpp"
#include "gui/panels/switch_row.hpp"

namespace kvscope::gui {

namespace {

constexpr float kOut = -1.0f;  // points: frames stand around cells

std::string budget_text(const std::optional<Budget>& budget) {
  return budget ? budget->to_string() : "none";
}

/// The colour range of a figure's first panel.
std::optional<plot::Range> colours_of(const std::shared_ptr<const plot::Figure>& figure) {
  if (!figure || !figure->panels[0].colour) return std::nullopt;
  return figure->panels[0].colour->axis.range;
}

class CoveragePanel final : public TracePanel<CoverageSwitches> {
 public:
  PanelInfo info() const override {
    return {"coverage", "Coverage",
            "What the selected method keeps of the attention, by layer and head. A click goes "
            "there.",
            Extent::trace};
  }

  void controls(PanelContext& context) override {
    switch_list(switches_, switches_.metric, context.look.px(138));
    if (switch_box(switches_, switches_.lock_colours, "lock colours")) lock();
  }

  void draw_trace(PanelContext& context) override {
    update_questions(context);
    draw_heads(context);
  }

  std::string unfinished() const override {
    const bool lacks_some = figure_.is_shown() && !picture_->unfinished.empty();
    return lacks_some ? picture_->unfinished : TracePanel::unfinished();
  }

  /// The middle of cells: "head LAYER/HEAD".
  Places landmarks() const override {
    constexpr std::size_t kMost = 256;
    Places places;
    const std::size_t n_heads = question_.q_heads.size();
    if (figure_.is_shown() && question_.layers.size() * n_heads <= kMost) {
      for (std::size_t cell = 0; cell < question_.layers.size() * n_heads; ++cell) {
        const std::size_t row = cell / n_heads;
        const std::size_t col = cell % n_heads;
        places.add(
            fmt::format("head {}/{}", question_.layers[row], question_.q_heads[col]),
            figure_.place(0, static_cast<double>(col) + 0.5, static_cast<double>(row) + 0.5));
      }
    }
    return places;
  }

 private:
  /// Keeps the colours that are shown now.
  void lock() {
    if (!switches_.lock_colours) return;
    if (const auto own = colours_of(made_)) {
      switches_.heads_low = own->low;
      switches_.heads_high = own->high;
    }
  }

  void forget() override {
    picture_.forget();
    made_.reset();
  }

  // ---- what is asked ----

  std::shared_ptr<const Document> second_of(const Session& session) const override {
    return session.draft_for(session.selection().selector);
  }

  void update_questions(const PanelContext& context) {
    const Session& session = context.session;
    if (!has_changed(session)) return;
    const auto document = session.document();
    const TraceInfo& info = document->info();
    HeadsQuestion& question = question_;
    question.trace = document->name();
    question.layers = info.layers;
    question.q_heads = info.q_heads;
    question.layer = session.selection().layer;
    question.n_tokens = info.n_tokens;
    question.phase = session.phase();
    question.parameters = session.parameters();
    question.metric = switches_.metric;
    const std::string& selected = session.selection().selector.text();
    question.method = method_items({selected}, question.parameters, question.phase,
                                   session.second() != nullptr)
                          .front();  // ticked ones come first
    picture_.items.clear();
    if (question.method.obstacle.empty()) {
      for (const MethodRowsRequest& request : plan_heads(question))
        picture_.items.push_back(
            method_rows_item(document_, second_, question.method.name, request));
    }
  }

  // ---- layer x head ----

  void draw_heads(PanelContext& context) {
    if (!question_.method.obstacle.empty()) {
      empty_place(context, fmt::format("{} does not answer here", question_.method.name),
                  question_.method.obstacle);
      made_.reset();
      return;
    }
    const bool has_picture = picture_.update(context, "Map of heads", sources_ + question_.key(),
                                             "", [&](const auto& values) {
                                               return [question = question_, values](JobContext&) {
                                                 return heads_picture(question, values);
                                               };
                                             });
    busy_ = busy_ || picture_.is_busy();
    if (!has_picture) return;
    show(context, {picture_.get(), &picture_->figure});
    mark_head(context);
    if (const auto& hit = figure_.hit(); hit && hit->row && hit->col) {
      follow_head(context, *hit);
    }
  }

  void mark_head(const PanelContext& context) {
    const Selection& selection = context.session.selection();
    const auto row = static_cast<double>(document_->info().layer_slot(selection.layer));
    const auto col = static_cast<double>(document_->info().q_slot(selection.q_head));
    AccentMarks(context, *figure_, 0).frame({col, col + 1.0}, {row, row + 1.0}, kOut);
  }

  void follow_head(PanelContext& context, const FigureHit& hit) {
    const auto row = static_cast<std::size_t>(*hit.row);
    const auto col = static_cast<std::size_t>(*hit.col);
    if (row >= question_.layers.size() || col >= question_.q_heads.size()) return;
    const Index layer = question_.layers[row];
    const Index head = question_.q_heads[col];
    const SweepRow* found = picture_->find(layer, head);
    HoverLines lines = {
        {"layer", fmt::format("{}", layer)},
        {"query head", fmt::format("{} (KV head {})", head, head / document_->info().group(layer))},
        {"method", question_.method.spec.text()},
        {"budget", budget_text(budget_of(question_.method.name, question_.parameters))}};
    if (found == nullptr) {
      lines.emplace_back("", "still to come");
    } else if (found->number(SweepNumber::window) != 0.0) {
      lines.emplace_back("", "a sliding-window layer stays dense");
    } else if (found->number(SweepNumber::dense) != 0.0) {
      lines.emplace_back("", "the method leaves this layer dense");
    } else {
      lines.emplace_back(std::string(enum_name(question_.metric)),
                         number_text(metric_of(*found, question_.metric), 6));
      lines.emplace_back("keys kept", number_text(found->number(SweepNumber::kept), 6));
      if (question_.metric == RecallMetric::mass) {
        lines.emplace_back("worst row", number_text(found->number(SweepNumber::mass_min), 6));
      }
    }
    detail_tooltip(lines);
    if (!hit.clicked) return;
    context.session.select_head("coverage click", layer, head);
  }

  void show(PanelContext& context, const std::shared_ptr<const plot::Figure>& made) {
    if (made_ != made || made_with_ != switches_) {
      made_ = made;
      made_with_ = switches_;
      shown_ = *made;
      if (switches_.lock_colours) set_colours(shown_, switches_.heads_low, switches_.heads_high);
      figure_.renew();
    }
    figure_.show(context, shown_, ImGui::GetContentRegionAvail());
  }

  HeadsQuestion question_;
  QueuePicture<MethodRows, HeadsPicture> picture_;
  std::shared_ptr<const plot::Figure> made_;  // with its own colours; null: nothing
  CoverageSwitches made_with_;                // with which it is shown
  plot::Figure shown_;
};

}  // namespace

std::unique_ptr<Panel> make_coverage_panel() {
  return std::make_unique<CoveragePanel>();
}

}  // namespace kvscope::gui

// Coverage heat maps: what every head keeps under the selected method, and which pages of keys the
// selected layer loses.
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/base/number_text.hpp"
#include "gui/model/methods/coverage_view.hpp"
#include "gui/model/results/compact_figure.hpp"
#include "gui/panels/accent_marks.hpp"
#include "gui/panels/panel_base.hpp"
#include "gui/panels/queue_picture.hpp"
#include "gui/panels/switch_row.hpp"
#include "gui/render/colour.hpp"

namespace kvscope::gui {

namespace {

constexpr float kSideBySide = 1.15f;  // width / height from which two maps stand beside each other
constexpr float kOut = -1.0f;         // points: frames stand around cells

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
            "What the selected method keeps of the attention: by layer and head, and by query "
            "block and page of keys. A click goes there.",
            Extent::trace};
  }

  void controls(PanelContext& context) override {
    const Look& look = context.look;
    switch_list(switches_, switches_.view, look.px(72));
    if (switches_.view != CoverageView::pages)
      switch_list(switches_, switches_.metric, look.px(138));
    if (switches_.view != CoverageView::heads) {
      switch_list(switches_, switches_.part, look.px(86));
      switch_list(switches_, switches_.heads, look.px(88));
    }
    if (switch_box(switches_, switches_.lock_colours, "lock colours")) lock();
  }

  void draw_trace(PanelContext& context) override {
    update_questions(context);
    const ImVec2 room = ImGui::GetContentRegionAvail();
    const float gap = ImGui::GetStyle().ItemSpacing.x;
    const bool are_both = switches_.view == CoverageView::both;
    const bool beside = room.x > kSideBySide * room.y;
    const ImVec2 first = beside ? ImVec2{std::floor((room.x - gap) * 0.42f), room.y}
                                : ImVec2{room.x, std::floor((room.y - gap) * 0.45f)};
    if (switches_.view != CoverageView::pages) {
      begin_part("heads", are_both ? first : ImVec2{0, 0});
      draw_heads(context);
      ImGui::EndChild();
    }
    if (are_both && beside) ImGui::SameLine();
    if (switches_.view != CoverageView::heads) {
      begin_part("pages", {0, 0});
      draw_pages(context);
      ImGui::EndChild();
    }
  }

  std::optional<plot::Figure> figure() const override {
    std::optional<plot::Figure> heads;
    std::optional<plot::Figure> pages;
    if (switches_.view != CoverageView::pages) heads = heads_.current();
    if (switches_.view != CoverageView::heads) pages = pages_.current();
    if (!heads || !pages) return heads ? heads : pages;
    plot::Figure both = std::move(*heads);
    for (plot::Panel& panel : pages->panels) both.panels.push_back(std::move(panel));
    for (std::string& sentence : pages->caption) both.caption.push_back(std::move(sentence));
    both.name = "coverage";
    both.columns = 2;
    both.share_x = both.share_y = false;
    both.span = plot::Span::full;
    return both;
  }

  std::string unfinished() const override {
    const bool lacks_some = heads_.current() && !picture_->unfinished.empty();
    return lacks_some ? picture_->unfinished : TracePanel::unfinished();
  }

  /// The middle of cells: "head LAYER/HEAD", and "page QUERY/KEY" (first positions) for some.
  Places landmarks() const override {
    constexpr std::size_t kMost = 256;
    Places places;
    const std::size_t n_heads = question_.q_heads.size();
    if (heads_.current() && question_.layers.size() * n_heads <= kMost) {
      for (std::size_t cell = 0; cell < question_.layers.size() * n_heads; ++cell) {
        const std::size_t row = cell / n_heads;
        const std::size_t col = cell % n_heads;
        places.add(
            fmt::format("head {}/{}", question_.layers[row], question_.q_heads[col]),
            heads_.view.place(0, static_cast<double>(col) + 0.5, static_cast<double>(row) + 0.5));
      }
    }
    if (pages_.current() && pages_value_) {
      const PagesRequest& request = pages_value_->request();
      for (const auto& [query, key] : pages_value_->some_cells()) {
        places.add(
            fmt::format("page {}/{}", query, key),
            pages_.view.place(
                0, static_cast<double>(key) + 0.5 * static_cast<double>(request.page_size),
                static_cast<double>(query) + 0.5 * static_cast<double>(request.query_block)));
      }
    }
    return places;
  }

 private:
  /// One map on screen.
  struct Shown {
    std::shared_ptr<const plot::Figure> made;  // with its own colours; null: nothing
    CoverageSwitches switches;                 // with which it is shown
    plot::Figure figure;
    PanelFigure view;

    std::optional<plot::Figure> current() const { return made ? view.current() : std::nullopt; }
  };

  /// Keeps the colours that are shown now.
  void lock() {
    if (!switches_.lock_colours) return;
    if (const auto own = colours_of(heads_.made)) {
      switches_.heads_low = own->low;
      switches_.heads_high = own->high;
    }
    const auto own = colours_of(pages_.made);
    if (own && switches_.part != PagesPart::selected) {
      switches_.pages_low = own->low;
      switches_.pages_high = own->high;
    }
  }

  void forget() override {
    picture_.forget();
    heads_.made.reset();
    pages_slot_.clear();
    pages_picture_slot_.clear();
    pages_value_.reset();
    pages_.made.reset();
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
    const bool one_head = switches_.heads == PagesHeads::selected;
    request_ = pages_request(info, question.layer,
                             one_head ? std::optional(session.selection().q_head) : std::nullopt,
                             question.phase, question.method, question.parameters);
  }

  // ---- layer x head ----

  void draw_heads(PanelContext& context) {
    if (!question_.method.obstacle.empty()) {
      empty_place(context, fmt::format("{} does not answer here", question_.method.name),
                  question_.method.obstacle);
      heads_.made.reset();
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
    show(context, heads_, {picture_.get(), &picture_->figure}, switches_.heads_low,
         switches_.heads_high);
    mark_head(context);
    if (const auto& hit = heads_.view.hit(); hit && hit->row && hit->col) {
      follow_head(context, *hit);
    }
  }

  void mark_head(const PanelContext& context) {
    const Selection& selection = context.session.selection();
    const auto row = static_cast<double>(document_->info().layer_slot(selection.layer));
    const auto col = static_cast<double>(document_->info().q_slot(selection.q_head));
    AccentMarks(context, *heads_.view, 0).frame({col, col + 1.0}, {row, row + 1.0}, kOut);
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
        {"query head", fmt::format("{} (KV head {})", head,
                                   head / std::max<Index>(1, document_->info().group()))},
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

  // ---- query block x page ----

  void draw_pages(PanelContext& context) {
    const auto result = ask(context, pages_slot_, sources_ + request_.key(),
                            {fmt::format("Pages of layer {}", request_.layer), Lane::heavy},
                            on_traces(document_, second_, request_, coverage_pages));
    if (!async_place(context, pages_slot_, result)) return;
    const PagesPart part = result.value->has_method() ? switches_.part : PagesPart::attention;
    const auto picture = ask(context, pages_picture_slot_,
                             fmt::format("{}pages-figure/{}/{}", sources_,
                                         result.value->request().key(), enum_name(part)),
                             {"Map of pages", Lane::quick, /*urgent=*/true},
                             [pages = result.value, part, name = question_.trace](JobContext&) {
                               return MadeFigure{pages_figure(*pages, part, name)};
                             });
    if (!picture.value) {
      if (picture.failed()) empty_place(context, "Nothing to show", picture.status.error);
      return;
    }
    pages_value_ = result.value;
    show(context, pages_, {picture.value, &picture.value->figure}, switches_.pages_low,
         switches_.pages_high);
    mark_page(context);
    if (const auto& hit = pages_.view.hit()) follow_page(context, *hit);
  }

  void mark_page(const PanelContext& context) {
    const Selection& selection = context.session.selection();
    const auto frame = pages_.view->frame(0);
    if (!frame) return;
    ImDrawList& list = *ImGui::GetWindowDrawList();
    const ImU32 colour = packed(plot::with_alpha(context.look.accent, 0.85));
    const float width = context.look.px(1.5f);
    const auto query = static_cast<double>(selection.query);
    if (const auto cell = pages_value_->cell_at(0.0, query)) {
      const auto end = static_cast<double>(cell->block.end);
      AccentMarks(context, *pages_.view, 0)
          .frame({0.0, end}, {static_cast<double>(cell->block.begin), end}, kOut);
    }
    const double key = static_cast<double>(selection.key.value_or(0)) + 0.5;
    const auto at = pages_.view->place(0, key, query + 0.5);
    if (at && selection.key && at->x >= frame->low.x && at->x <= frame->high.x) {
      list.AddLine({at->x, frame->low.y}, {at->x, frame->high.y}, colour, width);
    }
  }

  void follow_page(PanelContext& context, const FigureHit& hit) {
    const auto cell = pages_value_->cell_at(hit.x, hit.y);
    if (!cell) return;
    const TraceInfo& info = document_->info();
    const PagesRequest& request = pages_value_->request();
    const Index end = request.phase == Phase::prefill ? info.n_prompt : info.n_tokens;
    AccentMarks(context, *pages_.view, 0)
        .frame({static_cast<double>(cell->page.begin), static_cast<double>(cell->page.end)},
               {static_cast<double>(cell->block.begin), static_cast<double>(cell->block.end)},
               kOut);
    HoverLines lines = {
        {"queries", fmt::format("{} to {}", cell->block.begin, std::min(cell->block.end, end) - 1)},
        {"keys",
         fmt::format("{} to {}", cell->page.begin, std::min(cell->page.end, info.n_tokens) - 1)}};
    if (document_->has_text()) lines.emplace_back("text", document_->text_of(cell->page, 72));
    if (std::isnan(cell->attention)) {
      lines.emplace_back("", "no measured query sees this page");
    } else {
      lines.emplace_back("attention", number_text(cell->attention, 6));
      if (cell->kept) lines.emplace_back("kept", number_text(*cell->kept, 6));
      if (cell->selected) lines.emplace_back("keys selected", number_text(*cell->selected, 6));
    }
    detail_tooltip(lines);
    if (!hit.clicked) return;
    const PagePlace place = page_place(*cell, end);
    context.session.select_pair("coverage click", place.query, place.key);
  }

  // ---- both ----

  void show(PanelContext& context, Shown& shown, const std::shared_ptr<const plot::Figure>& made,
            double low, double high) {
    if (shown.made != made || shown.switches != switches_) {
      shown.made = made;
      shown.switches = switches_;
      shown.figure = *made;
      const bool is_share_of_keys = &shown == &pages_ && switches_.part == PagesPart::selected;
      if (switches_.lock_colours && !is_share_of_keys) set_colours(shown.figure, low, high);
      shown.view.renew();
    }
    shown.view.show(context, shown.figure, ImGui::GetContentRegionAvail());
  }

  HeadsQuestion question_;
  PagesRequest request_;

  QueuePicture<MethodRows, HeadsPicture> picture_;
  Shown heads_;

  AsyncValue<CoveragePages> pages_slot_;
  AsyncValue<MadeFigure> pages_picture_slot_;
  std::shared_ptr<const CoveragePages> pages_value_;
  Shown pages_;
};

}  // namespace

std::unique_ptr<Panel> make_coverage_panel() {
  return std::make_unique<CoveragePanel>();
}

}  // namespace kvscope::gui

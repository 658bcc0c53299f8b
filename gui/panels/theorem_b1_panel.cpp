// Theorem B.1 on the rows of the selected head: the measured cosine against the bounds on it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "gui/model/bounds/theorem_figures.hpp"
#include "gui/model/session/json_fields.hpp"
#include "gui/panels/accent_marks.hpp"
#include "gui/panels/panel.hpp"
#include "gui/panels/widgets.hpp"
#include "gui/render/colour.hpp"

namespace kvscope::gui {

namespace {

constexpr const char* kViolations = "violations:";

struct TheoremSwitches {
  TheoremPicture picture = TheoremPicture::one;
  TheoremBound bound = TheoremBound::jensen;
  TheoremColour colour = TheoremColour::weight;
  TheoremB1Options analysis;

  template <class Self, class Visit>
  static void visit_fields(Self& self, Visit&& visit) {
    visit(Field{"picture",
                "one: the chosen bound; all: the four lower bounds; main_text: the upper "
                "bounds on the cosine of the mean query"},
          self.picture);
    visit(Field{"bound", "the bound that is shown alone"}, self.bound);
    visit(Field{"colour", "points are coloured by the weight of k* or by the query's position"},
          self.colour);
    TheoremB1Options::visit_fields(self.analysis, visit);
  }
};

class TheoremB1Panel final : public Panel {
 public:
  PanelInfo info() const override {
    return {"theorem-b1", "Theorem B.1",
            "The cosine of a key k* with its query against the bounds that its softmax weight "
            "gives. Click a point to go to its query and key."};
  }

  void controls(PanelContext& context) override {
    segmented("picture", switches_.picture);
    help_tooltip(field_help<TheoremSwitches>("picture"));
    ImGui::SameLine();
    if (switches_.picture == TheoremPicture::one) {
      choose_bound(context);
      ImGui::SameLine();
    }
    choose_enum("##colour", switches_.colour, "colour", context.look.px(92));
    ImGui::SameLine();
    ImGui::AlignTextToFramePadding();
    ImGui::TextDisabled("k*");
    ImGui::SameLine();
    choose_enum("##star", switches_.analysis.star, "star", context.look.px(92));
    if (switches_.analysis.star != StarKey::rank) return;
    ImGui::SameLine();
    ImGui::SetNextItemWidth(context.look.px(86));
    const Index step = 1;
    ImGui::InputScalar("##rank", ImGuiDataType_S64, &switches_.analysis.rank, &step);
    switches_.analysis.rank = std::max<Index>(1, switches_.analysis.rank);
    help_tooltip(field_help<TheoremSwitches>("rank"));
  }

  void draw(PanelContext& context) override {
    waiting_ = false;
    const auto document = context.session.document();
    if (!document || document->key() != document_key_) forget();
    if (needs_trace(context)) return;
    document_key_ = document->key();
    const auto view = ask(context, document);
    waiting_ = view.is_pending();
    if (!async_place(context, slot_, view)) return;
    update_figure(view.value);
    if (rows_->n_stated == 0) {
      empty_place(context, "No row says anything",
                  "Each query of this head sees one key only. Choose another layer, or a longer "
                  "trace.");
      return;
    }
    row_ = rows_->nearest(context.session.selection().query);
    show_figure(context);
    if (row_) draw_selected(context);
    if (const auto& hit = view_->hit(); hit && hit->mark && hit->point) {
      if (const auto row = plot_.row_at(hit->panel, *hit->mark, *hit->point)) {
        explain(*document, plot_.bounds[hit->panel], *row);
        if (hit->clicked) go_to(context, *row);
      }
    }
    draw_numbers(context);
  }

  std::optional<plot::Figure> figure() const override {
    if (!view_ || drawn_.empty() || !rows_ || rows_->n_stated == 0) return std::nullopt;
    plot::Figure figure = view_->current_figure();
    if (row_) mark_row(figure, *rows_, plot_.bounds, *row_);
    return figure;
  }

  std::optional<std::string> csv() const override {
    if (!rows_) return std::nullopt;
    return theorem_csv(*rows_);
  }
  std::optional<ImVec2> place(std::size_t panel, double x, double y) const override {
    return view_ && !drawn_.empty() ? view_->place(panel, x, y) : std::nullopt;
  }

  nlohmann::ordered_json options() const override { return fields_to_json(switches_); }
  void set_options(const nlohmann::ordered_json& options) override {
    TheoremSwitches switches = switches_;
    fields_from_json(options, switches);
    check_fields(switches.analysis);
    switches_ = switches;
  }
  bool is_busy() const override { return waiting_; }

 private:
  // ---- switches ----

  template <class E>
  void choose_enum(const char* id, E& value, std::string_view field, float width) {
    const auto& names = EnumNames<E>::value;
    const std::vector<std::string> words(names.begin(), names.end());
    std::string chosen(enum_name(value));
    if (choose(id, chosen, words, width)) {
      value = static_cast<E>(std::find(words.begin(), words.end(), chosen) - words.begin());
    }
    help_tooltip(field_help<TheoremSwitches>(field));
  }

  void choose_bound(PanelContext& context) {
    std::vector<std::string> titles;
    for (std::size_t b = 0; b < kTheoremBounds; ++b) {
      titles.emplace_back(title_of(static_cast<TheoremBound>(b)));
    }
    std::string chosen(title_of(switches_.bound));
    if (choose("##bound", chosen, titles, context.look.px(168))) {
      switches_.bound = static_cast<TheoremBound>(std::find(titles.begin(), titles.end(), chosen) -
                                                  titles.begin());
    }
    help_tooltip(field_help<TheoremSwitches>("bound"));
  }

  // ---- what is asked for, and its figure ----

  /// Pictures of another trace are not shown while this one's are made.
  void forget() {
    document_key_.clear();
    slot_.clear();
    rows_.reset();
    drawn_.clear();
  }

  AsyncView<TheoremRows> ask(PanelContext& context,
                             const std::shared_ptr<const Document>& document) {
    TheoremRequest request;
    request.layer = context.session.selection().layer;
    request.q_head = context.session.selection().q_head;
    request.options = switches_.analysis;
    return slot_.ask(
        context.session.bench(), document->key() + request.key(),
        {fmt::format("Theorem B.1 of layer {}, head {}", request.layer, request.q_head),
         Lane::heavy},
        [=](JobContext& job) { return theorem_rows(document->source(), request, job); });
  }

  void update_figure(const std::shared_ptr<const TheoremRows>& rows) {
    const std::string wanted = fmt::format("{}/{}/{}", enum_name(switches_.picture),
                                           enum_name(switches_.bound), enum_name(switches_.colour));
    if (rows == rows_ && wanted == drawn_) return;
    rows_ = rows;
    drawn_ = wanted;
    ++version_;
    if (rows_->n_stated == 0) return;
    plot_ = theorem_plot(*rows_, bounds_of(switches_.picture, switches_.bound), switches_.colour);
  }

  void show_figure(PanelContext& context) {
    if (!view_) view_.emplace(context.fonts, context.textures);
    const ImVec2 room = ImGui::GetContentRegionAvail();
    const float below = static_cast<float>(button_lines()) * ImGui::GetFrameHeightWithSpacing() +
                        (row_ ? accent_words_height(row_words(context)) : 0.0f);
    view_->show(plot_.figure, version_, {room.x, std::max(context.look.px(60), room.y - below)},
                {context.look.ground, context.look.surface, {}});
  }

  void draw_selected(const PanelContext& context) const {
    for (std::size_t panel = 0; panel < plot_.bounds.size(); ++panel) {
      const TheoremBound bound = plot_.bounds[panel];
      AccentMarks(context, *view_, panel)
          .ring(static_cast<double>(rows_->column(bound).bound[*row_]),
                static_cast<double>(rows_->measured(bound)[*row_]));
    }
  }

  void go_to(PanelContext& context, std::size_t row) {
    context.session.select("theorem B.1 click", [&](Selection& s) {
      s.query = rows_->query[row];
      s.key = rows_->star[row];
    });
  }

  // ---- words ----

  void explain(const Document& document, TheoremBound bound, std::size_t row) const {
    const double limit = static_cast<double>(rows_->column(bound).bound[row]);
    const double measured = static_cast<double>(rows_->measured(bound)[row]);
    const bool is_violated = rows_->column(bound).violated[row] != 0;
    detail_tooltip({{"query", token_words(document, rows_->query[row])},
                    {"k*", token_words(document, rows_->star[row])},
                    {"weight of k*", fmt::format("{:.6g}", rows_->weight[row])},
                    {is_upper(bound) ? "cos(M, q)" : "cos(k*, q)", fmt::format("{:.6g}", measured)},
                    {std::string(title_of(bound)), fmt::format("{:.6g}", limit)},
                    {is_violated ? "violated by" : "holds by",
                     fmt::format("{:.6g}", std::abs(limit - measured))},
                    {"N_eff", fmt::format("{:.6g}", rows_->norm_eff[row])}});
  }

  std::string button_label(TheoremBound bound) const {
    return fmt::format("{} {}##violations", short_title(bound), rows_->column(bound).violations);
  }

  static float button_width(const std::string& label) {
    return ImGui::CalcTextSize(label.c_str(), nullptr, true).x +
           2 * ImGui::GetStyle().FramePadding.x;
  }

  /// Lines that the buttons of all bounds take in the room there is.
  int button_lines() const {
    const float room = ImGui::GetContentRegionAvail().x;
    const float gap = ImGui::GetStyle().ItemSpacing.x;
    int lines = 1;
    float used = ImGui::CalcTextSize(kViolations).x;
    for (std::size_t b = 0; b < kTheoremBounds; ++b) {
      const float width = button_width(button_label(static_cast<TheoremBound>(b)));
      const bool fits = used + gap + width <= room;
      lines += fits ? 0 : 1;
      used = fits ? used + gap + width : width;
    }
    return lines;
  }

  /// Violations of every bound, each a button that shows it; and the selected row.
  void draw_numbers(PanelContext& context) {
    const float right = ImGui::GetWindowPos().x + ImGui::GetContentRegionMax().x;
    ImGui::AlignTextToFramePadding();
    ImGui::TextDisabled("%s", kViolations);
    for (std::size_t b = 0; b < kTheoremBounds; ++b) {
      const auto bound = static_cast<TheoremBound>(b);
      const Index n = rows_->column(bound).violations;
      const bool is_wrong = n > 0 && must_hold(bound);
      const std::string label = button_label(bound);
      const float end =
          ImGui::GetItemRectMax().x + ImGui::GetStyle().ItemSpacing.x + button_width(label);
      if (end <= right) ImGui::SameLine();
      if (is_wrong) ImGui::PushStyleColor(ImGuiCol_Text, packed(context.look.error));
      if (ImGui::Button(label.c_str())) {
        switches_.picture = TheoremPicture::one;
        switches_.bound = bound;
      }
      if (is_wrong) ImGui::PopStyleColor();
      help_tooltip(fmt::format(
          "{}: {} of {} rows violate it, mean gap {:.4g}.{}", title_of(bound), n, rows_->n_stated,
          rows_->column(bound).gap_mean,
          must_hold(bound) ? " It is proved: more than none would be a mistake of the program."
                           : " It does not hold in general."));
    }
    if (row_) accent_words(context, row_words(context));
  }

  static std::string_view short_title(TheoremBound bound) {
    static constexpr std::array<std::string_view, kTheoremBounds> kTitles = {
        "printed", "repaired", "Jensen", "worst case", "main text", "spherical"};
    return kTitles[static_cast<std::size_t>(bound)];
  }

  /// The selected row in numbers. Only with row_.
  std::string row_words(const PanelContext& context) const {
    const Index wanted = context.session.selection().query;
    const Index query = rows_->query[*row_];
    const std::string which =
        query == wanted ? fmt::format("query {}", query)
                        : fmt::format("query {} was not measured; the nearest, {}", wanted, query);
    if (std::isnan(rows_->cos[*row_])) return which + ": sees itself only";
    return fmt::format("{}: k* at {}, weight {:.4g}, cos(k*, q) {:.4g}, cos(M, q) {:.4g}", which,
                       rows_->star[*row_], rows_->weight[*row_], rows_->cos[*row_],
                       rows_->cos_mean_query[*row_]);
  }

  TheoremSwitches switches_;
  AsyncValue<TheoremRows> slot_;
  bool waiting_ = false;

  // what is shown
  std::string document_key_;
  std::shared_ptr<const TheoremRows> rows_;
  std::optional<std::size_t> row_;  // of the selected query, or the nearest one measured
  TheoremPlot plot_;
  std::string drawn_;  // the switches that plot_ was made with
  std::uint64_t version_ = 0;
  std::optional<FigureView> view_;
};

}  // namespace

std::unique_ptr<Panel> make_theorem_b1_panel() {
  return std::make_unique<TheoremB1Panel>();
}

}  // namespace kvscope::gui

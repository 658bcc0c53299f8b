// Theorem B.1 on the rows of the selected head: the measured cosine against the bounds on it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "gui/model/bounds/theorem_view.hpp"
#include "gui/panels/accent_marks.hpp"
#include "gui/panels/panel_base.hpp"
#include "gui/panels/switch_row.hpp"
#include "gui/render/colour.hpp"

namespace kvscope::gui {

namespace {

constexpr const char* kViolations = "violations:";

struct TheoremSwitches {
  TheoremPicture picture = option(
      picture, "picture", TheoremPicture::one,
      "one: the chosen bound; all: the four lower bounds; main_text: the upper bounds on the "
      "cosine of the mean query");
  TheoremBound bound =
      option(bound, "bound", TheoremBound::jensen, "the bound that is shown alone");
  TheoremColour colour =
      option(colour, "colour", TheoremColour::weight,
             "points are coloured by the weight of k* or by the query's position");
  TheoremB1Options analysis;
  bool operator==(const TheoremSwitches&) const = default;
};

class TheoremB1Panel final : public FigurePanel<TheoremRows, TheoremSwitches> {
 public:
  PanelInfo info() const override {
    return {"theorem-b1", "Theorem B.1",
            "The cosine of a key k* with its query against the bounds that its softmax weight "
            "gives. Click a point to go to its query and key."};
  }

  void controls(PanelContext& context) override {
    switch_buttons(switches_, switches_.picture);
    if (switches_.picture == TheoremPicture::one) {
      std::vector<std::string> titles;
      for (std::size_t b = 0; b < kTheoremBounds; ++b)
        titles.emplace_back(title_of(static_cast<TheoremBound>(b)));
      switch_list(switches_, switches_.bound, context.look.px(168), titles);
    }
    switch_list(switches_, switches_.colour, context.look.px(92));
    switch_label("k*");
    switch_list(switches_, switches_.analysis.star, context.look.px(92));
    if (switches_.analysis.star != StarKey::rank) return;
    next_switch();
    ImGui::SetNextItemWidth(context.look.px(86));
    const Index step = 1;
    ImGui::InputScalar("##rank", ImGuiDataType_S64, &switches_.analysis.rank, &step);
    switches_.analysis.rank = std::max<Index>(1, switches_.analysis.rank);
    help_tooltip(field_at(switches_, switches_.analysis.rank).help);
  }

  std::optional<plot::Figure> figure() const override {
    auto figure = FigurePanel::figure();
    if (figure && row_) mark_row(*figure, *value_, bounds_, *row_);
    return figure;
  }

  std::optional<std::string> csv() const override {
    if (!value_) return std::nullopt;
    return theorem_csv(*value_);
  }

 private:
  // ---- what is asked for, and its figure ----

  std::optional<Question> question(PanelContext& context) override {
    TheoremRequest request{.layer = context.session.selection().layer,
                           .q_head = context.session.selection().q_head,
                           .options = switches_.analysis};
    return Question{
        request.key(),
        {fmt::format("Theorem B.1 of layer {}, head {}", request.layer, request.q_head)},
        on_trace(document_, request, theorem_rows)};
  }

  bool lacks_figure(PanelContext& context) override {
    row_ = value_->nearest(context.session.selection().query);
    if (value_->n_stated > 0) return false;
    empty_place(context, "No row says anything",
                "Each query of this head sees one key only. Choose another layer, or a longer "
                "trace.");
    return true;
  }

  plot::Figure make_picture() override {
    bounds_ = bounds_of(switches_.picture, switches_.bound);
    return theorem_plot(*value_, bounds_, switches_.colour);
  }

  float height_below(PanelContext& context) override {
    return static_cast<float>(button_lines()) * ImGui::GetFrameHeightWithSpacing() +
           (row_ ? accent_words_height(row_words(context)) : 0.0f);
  }

  void draw_over(PanelContext& context) override {
    if (!row_) return;
    for (std::size_t panel = 0; panel < bounds_.size(); ++panel) {
      const TheoremBound bound = bounds_[panel];
      AccentMarks(context, *figure_, panel)
          .ring(static_cast<double>(value_->column(bound).bound[*row_]),
                static_cast<double>(value_->measured(bound)[*row_]));
    }
  }

  void follow(PanelContext& context, const FigureHit& hit) override {
    if (!hit.of) return;
    explain(bounds_[hit.panel], *hit.of);
    if (!hit.clicked) return;
    context.session.select_pair("theorem B.1 click", value_->query[*hit.of], value_->star[*hit.of]);
  }

  // ---- words ----

  void explain(TheoremBound bound, std::size_t row) const {
    const double limit = static_cast<double>(value_->column(bound).bound[row]);
    const double measured = static_cast<double>(value_->measured(bound)[row]);
    const bool is_violated = value_->column(bound).violated[row] != 0;
    detail_tooltip({{"query", token_words(*document_, value_->query[row])},
                    {"k*", token_words(*document_, value_->star[row])},
                    {"weight of k*", fmt::format("{:.6g}", value_->weight[row])},
                    {is_upper(bound) ? "cos(M, q)" : "cos(k*, q)", fmt::format("{:.6g}", measured)},
                    {std::string(title_of(bound)), fmt::format("{:.6g}", limit)},
                    {is_violated ? "violated by" : "holds by",
                     fmt::format("{:.6g}", std::abs(limit - measured))},
                    {"N_eff", fmt::format("{:.6g}", value_->norm_eff[row])}});
  }

  std::string button_label(TheoremBound bound) const {
    return fmt::format("{} {}##violations", short_title(bound), value_->column(bound).violations);
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
  void draw_below(PanelContext& context) override {
    const float right = ImGui::GetWindowPos().x + ImGui::GetContentRegionMax().x;
    ImGui::AlignTextToFramePadding();
    ImGui::TextDisabled("%s", kViolations);
    for (std::size_t b = 0; b < kTheoremBounds; ++b) {
      const auto bound = static_cast<TheoremBound>(b);
      const Index n = value_->column(bound).violations;
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
          "{}: {} of {} rows violate it, mean gap {:.4g}.{}", title_of(bound), n, value_->n_stated,
          value_->column(bound).gap_mean,
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
    const Index query = value_->query[*row_];
    const std::string which =
        query == wanted ? fmt::format("query {}", query)
                        : fmt::format("query {} was not measured; the nearest, {}", wanted, query);
    if (std::isnan(value_->cos[*row_])) return which + ": sees itself only";
    return fmt::format("{}: k* at {}, weight {:.4g}, cos(k*, q) {:.4g}, cos(M, q) {:.4g}", which,
                       value_->star[*row_], value_->weight[*row_], value_->cos[*row_],
                       value_->cos_mean_query[*row_]);
  }

  std::optional<std::size_t> row_;    // of the selected query, or the nearest one measured
  std::vector<TheoremBound> bounds_;  // of the panels of picture_
};

}  // namespace

std::unique_ptr<Panel> make_theorem_b1_panel() {
  return std::make_unique<TheoremB1Panel>();
}

}  // namespace kvscope::gui
